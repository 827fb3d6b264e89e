// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "sync/agreement_impl.h"
#include "sync/neighbours.h"

namespace cw::sync {
namespace {

constexpr int64_t kUntimelyNs = 1'500'000'000;       // a claim may be told so long after its anchor …
constexpr int64_t kAheadNs = 50'000'000;             // … and by so much before, as far as the link can tell
constexpr int64_t kStepNs = 1'000'000'000;           // links that were stepped within so long of each other: one cause
constexpr int64_t kNeighbourStepNs = 1'500'000'000;  // a neighbour that was stepped may take so long to re-anchor
constexpr int64_t kAbsentNs = 1'500'000'000;         // longer is an absence
constexpr int64_t kReturnNs = 30'000'000'000;        // after an absence a neighbour may take so long to come near
constexpr double kSlewedTogetherNs = 200'000;  // parts that are further apart would slew for more than two seconds
constexpr double kMergeTimeS = 10, kMergedTimeS = 0.5;
constexpr double kInsaneNs = 1e15, kInsanePpb = 1e7;
constexpr double kNamedAfterS = 0.5, kForgivenAfterS = 5;
constexpr int64_t kQuarantineNs = 10'000'000'000;  // doubles each time …
constexpr int kMostDoublings = 5;
constexpr int64_t kForgottenNs = 600'000'000'000;               // … and is forgotten after so long without offence
constexpr double kDistantNs = 100'000, kDistantTimes = 10;      // of the shortest third of the links' bounds
constexpr double kJitteryTimes = 8;                             // of the median of the links' errors
constexpr double kHopelessTimes = 100, kHopelessNs = 10'000;    // of the best third of the links
constexpr double kUselessTimes = 1000, kUselessNs = 1'000'000;  // of our own error
constexpr double kMostScatter = 8;                              // of the links' errors: more is not taken for honest
constexpr double kShown = 12;                                   // deviations, of single links
constexpr double kLeastWeight = 1e-3;                           // of a distant or jittery link, beside the best

double Difference(int64_t a, int64_t b, int64_t c) {
  const double d = static_cast<double>(static_cast<__int128>(a) + b - c);
  return std::clamp(d, -kInsaneNs, kInsaneNs);
}

// A neighbour's correction is meant for one round; what it does then it has yet to tell.
double Predicted(const FleetClaim& c, double age_s, const AgreementOptions& o) {
  const auto most = static_cast<double>(o.max_slew_ppb);
  const double slew = std::clamp(c.slope_ppb - c.rate_ppb, -most, most);
  return c.rate_ppb * age_s + slew * std::min(age_s, kRoundS);
}

}  // namespace

// Memories follow their neighbours when the list changes.
void Agreement::Impl::Align(const std::vector<NeighbourView>& views) {
  bool same = memories.size() == views.size();
  for (size_t i = 0; same && i < views.size(); ++i) same = memories[i].name == views[i].name;
  if (same) return;
  std::vector<Memory> old = std::move(memories);
  memories.clear();
  for (const NeighbourView& v : views) {
    const auto it = std::find_if(old.begin(), old.end(), [&](const Memory& m) { return m.name == v.name; });
    memories.push_back(it == old.end() ? Memory{} : std::move(*it));
    memories.back().name = v.name;
    memories.back().id = HostId(v.name);
  }
}

void Agreement::Impl::Assess(int64_t now_ns, const std::vector<NeighbourView>& views) {
  Align(views);
  peers.assign(views.size(), Peer{});
  voters.clear();
  int known = 0, stepped = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    Memory& m = memories[i];
    const Estimate& link = views[i].link;
    if (link.state == SyncState::kUnknown) continue;
    if (m.link_known && m.link_epoch != link.epoch) m.epoch_changed_ns = now_ns;
    m.link_known = true;
    m.link_epoch = link.epoch;
    ++known;
    stepped += now_ns - m.epoch_changed_ns < kStepNs;
  }
  own_step = known >= 2 && 2 * stepped > known;
  for (size_t i = 0; i < views.size(); ++i) {
    peers[i].view = static_cast<uint32_t>(i);
    AssessOne(now_ns, views[i], memories[i], peers[i]);
  }
}

void Agreement::Impl::AssessOne(int64_t now_ns, const NeighbourView& v, Memory& m, Peer& p) const {
  const FleetClaim& c = v.claim;
  const Estimate& link = v.link;
  if (link.state == SyncState::kUnknown || c.host_id != m.id || c.timeline == 0) return;
  // Also refuses what is no number.
  const bool sane =
      std::abs(c.slope_ppb) < kInsanePpb && std::abs(c.rate_ppb) < kInsanePpb && std::abs(link.slope_ppb) < kInsanePpb;
  if (!sane) return;
  if (v.claim_age_ns > options.claim_fresh_ns || link.age_ns > options.claim_fresh_ns) {
    p.reason = Reason::kStale;
    return;
  }
  // By the neighbour's own clock. A claim from another time than it says was made before one of the clocks was stepped.
  const double age_ns = Difference(now_ns, link.offset_ns, c.anchor_ns);
  const bool timely = age_ns >= -static_cast<double>(kAheadNs + link.bound_ns) &&
                      age_ns <= static_cast<double>(v.claim_age_ns + kUntimelyNs);
  p.heard = true;
  if (!timely) return;
  const double predicted = Predicted(c, age_ns * 1e-9, options);
  p.apart_ns = Difference(link.offset_ns, c.offset_ns, time.offset_ns) + predicted - fraction_ns;
  p.rate_ppb = c.rate_ppb + link.slope_ppb - rate_ppb;
  p.link_settled = link.settled;
  p.line_broke = link.line_age_ns > 0 && link.line_age_ns < kMakeGoodNs;
  p.rate_error_ppb = std::max(1.0, link.slope_error_ppb);
  p.error_ns = p.link_error_ns = static_cast<double>(std::max<int64_t>(link.error_est_ns, 1));
  p.changed_ns = static_cast<double>(std::max<int64_t>(link.changed_ns, 0));
  p.claim_error_ns = static_cast<double>(std::max<int64_t>(c.error_est_ns, 0));
  p.bound_ns = static_cast<double>(std::max<int64_t>(link.bound_ns, 0));
  p.width_ns = static_cast<double>(std::max<int64_t>(c.width_ns, 0));
  p.age_s = std::max({0.0, age_ns * 1e-9, static_cast<double>(v.claim_age_ns) * 1e-9});
  if (c.timeline != timeline) {
    p.reason = Reason::kTimeline;
    return;
  }
  p.comparable = c.state != SyncState::kUnknown;
  if (!p.comparable) return;
  const int64_t last = std::max(m.comparable_ns, settled_ns);
  if (settled && now_ns - last > kAbsentNs) {
    m.returning = true;
    m.returned_ns = now_ns;
    m.absent_ns = now_ns - last;
  }
  m.comparable_ns = now_ns;
}

// While we have no time of our own: those on our timeline that have; if too few have, all on it.
void Agreement::Impl::SelectForAcquiring(const std::vector<NeighbourView>& views) {
  const auto with_us = [&](const Peer& p) { return p.error_ns > 0 && views[p.view].claim.timeline == timeline; };
  const auto has_time = [&](const Peer& p) { return with_us(p) && views[p.view].claim.state != SyncState::kUnknown; };
  // More than may lie vouch for a time; of hosts that look for one themselves nothing can be learnt then.
  const int all = HeardWithUs(views);
  const bool vouched = std::count_if(peers.begin(), peers.end(), has_time) > Liars(all);
  const auto select = [&](const auto& wanted) {
    voters.clear();
    for (uint32_t i = 0; i < peers.size(); ++i) {
      if (!wanted(peers[i])) continue;
      voters.push_back(i);
      peers[i].error_ns = peers[i].link_error_ns;
    }
    DropHopeless();
    SetTolerances();
  };
  if (!vouched) return select(with_us);
  select(has_time);
  // As many liars as honest ones may be among so few. Where they contradict each other, the others who look for a time
  // decide with us: otherwise one liar keeps all who look, each with another time.
  if (static_cast<int>(voters.size()) <= 2 * Liars(all) && Contradict()) select(with_us);
}

// No majority of those who were selected can be right together.
bool Agreement::Impl::Contradict() {
  FillOpinions();
  return 2 * FindClique(opinions, -1).members <= static_cast<int>(voters.size());
}

void Agreement::Impl::SelectForFollowing(int64_t now_ns) {
  voters.clear();
  for (uint32_t i = 0; i < peers.size(); ++i) {
    if (peers[i].comparable) voters.push_back(i);
  }
  DropHopeless();
  SetTolerances();
  Excuse(now_ns);
}

// Links that hardly know anything beside the others, or beside what we know already, have no say: one that has just
// lost its line would tear the rate along.
void Agreement::Impl::DropHopeless() {
  if (voters.size() < 2) return;
  scratch.clear();
  for (const uint32_t v : voters) scratch.push_back(peers[v].error_ns);
  const auto third = scratch.begin() + static_cast<long>(scratch.size() / 3);
  std::nth_element(scratch.begin(), third, scratch.end());
  double limit = std::max(kHopelessTimes * *third, kHopelessNs);
  if (settled) limit = std::min(limit, std::max(kUselessNs, kUselessTimes * error_ns));
  const auto hopeless = [&](uint32_t v) {
    if (peers[v].error_ns <= limit) return false;
    peers[v].reason = Reason::kJittery;
    return true;
  };
  voters.erase(std::remove_if(voters.begin(), voters.end(), hopeless), voters.end());
}

// How far a neighbour may be from the others and still be honest: what its link and it say of their errors, but not
// less than what all scatter.
void Agreement::Impl::SetTolerances() {
  if (voters.empty()) return;
  const size_t n = voters.size();
  scratch.clear();
  for (const uint32_t v : voters) scratch.push_back(peers[v].error_ns);
  std::nth_element(scratch.begin(), scratch.begin() + static_cast<long>(n / 2), scratch.end());
  usual_error_ns = scratch[n / 2];
  scratch.clear();
  for (const uint32_t v : voters) scratch.push_back(peers[v].bound_ns);
  std::nth_element(scratch.begin(), scratch.begin() + static_cast<long>(n / 3), scratch.end());
  const double short_bound = scratch[n / 3];
  scratch.clear();
  for (const uint32_t v : voters) scratch.push_back(peers[v].apart_ns);
  if (settled) scratch.push_back(0);
  const Spread spread = RobustSpread(scratch);
  spread_ns = spread.deviation;
  median_ns = spread.median;
  const double scatter = std::min(spread_ns, kMostScatter * usual_error_ns);
  const bool mature = settled && rounds >= kMatureRounds && n > 2;
  const double shown = std::sqrt(link_scatter_ns2);
  for (const uint32_t v : voters) {
    Peer& p = peers[v];
    double likely = 1.25 * p.error_ns;
    // Estimators rather say too much of their errors: what a settled neighbourhood shows of itself is nearer.
    if (mature) likely = std::min(likely, kShown * shown * std::max(1.0, p.error_ns / usual_error_ns));
    p.tolerance_ns = std::max(likely + 0.5 * std::min(p.claim_error_ns, 4 * p.error_ns), 4 * scatter);
    p.reason = Reason::kUsed;
    if (p.error_ns > kJitteryTimes * usual_error_ns) p.reason = Reason::kJittery;
    if (p.bound_ns > std::max(kDistantNs, kDistantTimes * short_bound)) {
      p.reason = Reason::kDistant;
      p.tolerance_ns += p.bound_ns;
      p.error_ns += p.bound_ns / 100;
    }
    p.weight = 1 / (p.error_ns * p.error_ns + usual_error_ns * usual_error_ns / 4);
  }
  double best = 0;
  for (const uint32_t v : voters) best = std::max(best, peers[v].weight);
  for (const uint32_t v : voters) peers[v].weight = std::max(peers[v].weight, kLeastWeight * best);
  own_tolerance_ns = std::max(mature ? std::min(usual_error_ns, kShown * shown) / 2 : usual_error_ns / 2, 2 * scatter);
}

// Neighbours that are off for a reason that passes are left out: those whose clock was just stepped, and those that
// come back from an absence. When more of these come back at once than may lie, it is a part of the fleet that was cut
// off: then everybody may be as far apart as they are, until the parts have slewed together.
void Agreement::Impl::Excuse(int64_t now_ns) {
  const double decay = std::min(merge_ns / kMergeTimeS, 0.2 * static_cast<double>(options.max_slew_ppb));
  merge_ns -= decay * passed_s;
  if (merge_ns < own_tolerance_ns) merge_ns = 0;
  const auto off = [this](const Peer& p) {
    return std::abs(p.apart_ns) > p.tolerance_ns + own_tolerance_ns + merge_ns;
  };
  int back = 0;
  double furthest = 0;
  bool all_near = true;
  for (const uint32_t v : voters) {
    Memory& m = memories[v];
    all_near &= std::abs(peers[v].apart_ns) <= peers[v].tolerance_ns + own_tolerance_ns;
    if (m.returning && (!off(peers[v]) || now_ns - m.returned_ns > kReturnNs)) m.returning = false;
    const double drifted = options.max_drift_ppb * 1e-9 * static_cast<double>(m.absent_ns) + 1000;
    const double allowed = std::min(drifted, kSlewedTogetherNs);
    if (!m.returning || std::abs(peers[v].apart_ns) > allowed) continue;
    ++back;
    furthest = std::max(furthest, std::abs(peers[v].apart_ns));
  }
  if (all_near) merge_ns *= std::exp(-passed_s / kMergedTimeS);
  const int n = static_cast<int>(voters.size());
  // Neighbours that hear more of the other part than we do are drawn towards it, and say so in their errors.
  const auto drawn = [&](uint32_t v) { return !memories[v].returning && 2 * peers[v].claim_error_ns >= furthest; };
  const auto witnesses = back + static_cast<int>(std::count_if(voters.begin(), voters.end(), drawn));
  if (back > 0 && witnesses > Liars(n)) merge_ns = std::max(merge_ns, 1.5 * furthest);
  const auto passes = [&](uint32_t v) {
    const Memory& m = memories[v];
    const bool was_stepped = !own_step && now_ns - m.epoch_changed_ns < kNeighbourStepNs;
    return (m.returning || was_stepped) && off(peers[v]) && voters.size() != 1;
  };
  // More than may lie are no strays but a part of the fleet that has another time.
  if (std::count_if(voters.begin(), voters.end(), passes) > std::max(1, Liars(n))) return;
  const auto excused = [&](uint32_t v) {
    if (!passes(v)) return false;
    peers[v].reason = Reason::kWaiting;
    peers[v].weight = 0;
    return true;
  };
  voters.erase(std::remove_if(voters.begin(), voters.end(), excused), voters.end());
}

void Agreement::Impl::FillOpinions() {
  opinions.clear();
  for (const uint32_t v : voters) {
    const Peer& p = peers[v];
    opinions.push_back({p.apart_ns, p.tolerance_ns + merge_ns, p.weight});
  }
}

Clique Agreement::Impl::Judge(double own_tolerance) {
  FillOpinions();
  const Clique clique = FindClique(opinions, own_tolerance < 0 ? own_tolerance : own_tolerance + merge_ns);
  for (size_t k = 0; k < voters.size(); ++k) {
    Peer& p = peers[voters[k]];
    p.member = opinions[k].member;
    if (p.member) continue;
    p.reason = Reason::kFalseTicker;
    p.weight = 0;
  }
  return clique;
}

// Who stands outside for long is named, and stays out for a while after it has come back.
void Agreement::Impl::Remember(int64_t now_ns) {
  for (size_t k = 0; k < voters.size(); ++k) {
    Memory& m = memories[voters[k]];
    Peer& p = peers[voters[k]];
    const bool quarantined = now_ns < m.quarantined_until_ns;
    if (now_ns - m.quarantined_until_ns > kForgottenNs) m.quarantines = 0;
    if (p.member) {
      m.wrong = std::max(0.0f, m.wrong - static_cast<float>(passed_s / kForgivenAfterS));
    } else if (quarantined) {
      m.quarantined_until_ns = std::max(m.quarantined_until_ns, now_ns + kQuarantineNs);
    } else if (now_ns - split_seen_ns > kDisputeNs) {  // of a part of the fleet nobody is to blame
      m.wrong += static_cast<float>(passed_s / kNamedAfterS);
    }
    if (m.wrong >= 1) {
      m.quarantined_until_ns = now_ns + (kQuarantineNs << std::min(m.quarantines, kMostDoublings));
      ++m.quarantines;
      m.wrong = 0;
    }
    if (!quarantined || !p.member) continue;
    opinions[k].member = p.member = false;
    p.reason = Reason::kFalseTicker;
    p.weight = 0;
  }
}

int Agreement::Impl::Excluded() const {
  return static_cast<int>(std::count_if(opinions.begin(), opinions.end(), [](const Opinion& o) { return !o.member; }));
}

// The others' fleet rate − ours, each weighted by how well its link knows. Sets rate_noise_ppb.
double Agreement::Impl::MeanRate(int f) {
  scratch.clear();
  for (const uint32_t v : voters) scratch.push_back(peers[v].rate_error_ppb);
  std::nth_element(scratch.begin(), scratch.begin() + static_cast<long>(scratch.size() / 2), scratch.end());
  const double usual = scratch[scratch.size() / 2];
  rates.clear();
  for (size_t k = 0; k < voters.size(); ++k) {
    const Peer& p = peers[voters[k]];
    rates.push_back({p.rate_ppb, 0, 1 / (p.rate_error_ppb * p.rate_error_ppb + usual * usual), opinions[k].member});
    if (opinions[k].member && opinions[k].trimmed && p.reason == Reason::kUsed)
      peers[voters[k]].reason = Reason::kTrimmed;
  }
  const double mean = TrimmedMean(rates, f);
  double spread = 0, said = 0, weights = 0, n = 0;
  for (size_t k = 0; k < rates.size(); ++k) {
    const Opinion& r = rates[k];
    if (!r.member || r.trimmed) continue;
    spread += (r.value - mean) * (r.value - mean);
    said += r.weight * r.weight * peers[voters[k]].rate_error_ppb * peers[voters[k]].rate_error_ppb;
    weights += r.weight;
    ++n;
  }
  said = weights > 0 ? std::sqrt(said) / weights : 0;
  // One neighbour alone scatters against us: where both ends of a link see noise, each follows what the other sees.
  const double shown = n > 1 ? std::sqrt(spread / (n * (n - 1))) : std::abs(mean);
  // While clocks change their rates the neighbours' scatter; that is no noise.
  const double most = 2 * usual_rate_noise_ppb + std::max(1.0, n > 1 ? 0 : said);
  usual_rate_noise_ppb += (1 - std::exp(-passed_s / kUsualTimeS)) * (std::min(shown, most) - usual_rate_noise_ppb);
  rate_noise_ppb = std::max(usual_rate_noise_ppb, said);
  return mean;
}

// Between rounds: do most neighbours say that our rate is wrong by more than links err? Then our crystal has changed,
// or theirs all have.
bool Agreement::Impl::RateJumped(int64_t now_ns, const std::vector<NeighbourView>& views) {
  if (!settled || !joined || views.size() != peers.size() || now_ns - last_ns < kLeastRoundNs) return false;
  // What there is to make good shows better from one measurement to the next.
  if (now_ns - jumped_ns < kMakeGoodNs && now_ns - last_ns >= kMakeGoodRoundNs) return true;
  scratch.clear();
  double error = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const NeighbourView& v = views[i];
    const bool used = peers[i].member && v.claim.timeline == timeline && v.link.state == SyncState::kSynchronised &&
                      v.claim_age_ns <= options.claim_fresh_ns;
    if (!used) continue;
    scratch.push_back(v.claim.rate_ppb + v.link.slope_ppb - rate_ppb);
    error += v.link.slope_error_ppb;
  }
  if (scratch.empty()) return false;
  error = std::max(error / static_cast<double>(scratch.size()), usual_rate_noise_ppb);
  const double median = std::abs(RobustSpread(scratch).median);
  return median > kRateJumpPpb && median > kRateJumpNoises * error;
}

}  // namespace cw::sync
