// SPDX-License-Identifier: Apache-2.0
#include "sync/anchors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sync/vote.h"

namespace cw::sync {
namespace {

constexpr int64_t kAnchorGoneNs = 30'000'000'000;  // an anchor not heard of for so long has gone
constexpr size_t kMostAnchors = 32;                // those with the least bound are kept
constexpr double kWanderPpb =
    TaiTime::kWanderPpb;  // for the bound: fleet time's rate stays so close to what the anchor measured
constexpr double kOffsetGain = 0.1, kDriftGain = 0.005;  // of a reading: averages 20 readings, drift over 20 s
constexpr double kTimeConstantS = 2;                     // our TAI follows the majority …
constexpr double kMostAnchorSlewPpb = 10'000;            // … at most so fast
constexpr double kAnotherNs = 20'000;
// Who has heard one anchor only may have heard the one that is wrong: TAI is told when no other was heard of for so
// long, or so long after the first.
constexpr int64_t kQuietNs = 1'500'000'000, kFirstNs = 5'000'000'000;
constexpr double kMostDriftPpb = 300'000;          // of fleet time against TAI, before an anchor's drift is known
constexpr int kLearntReadings = 10;                // then an anchor's drift is known well enough to be told
constexpr double kOwnStepNs = 1000;                // noise of a reading beyond its bound is no step
constexpr int64_t kNewerNs = 2'000'000'000;        // a reading newer by this counts whatever its bound is
constexpr int64_t kDoubtNs = 300'000'000'000;      // a step is doubted for so long, if nobody confirms it
constexpr int64_t kAgreesAgainNs = 5'000'000'000;  // or until it has agreed with the others for so long
// A leap second spread over 24 h is 11.6 ppm, over 20 h 13.9; for the noise of rates a part in ten more.
constexpr double kLeastSmearPpb = 1e9 / 86'400 * 0.9, kMostSmearPpb = 1e9 / 72'000 * 1.1;
constexpr double kMostSmearNs = 1.1e9;
constexpr int64_t kYears300Ns = INT64_MAX / 2;

int64_t Grown(double ns_per_s_ppb, double seconds) { return std::llround(ns_per_s_ppb * seconds); }

bool Sane(const AnchorRecord& r) {
  return r.anchor_id != 0 && r.bound_ns >= 0 && r.bound_ns < kYears300Ns && r.age_ns >= 0 && r.age_ns < kAnchorGoneNs &&
         r.offset_ns > -kYears300Ns && r.offset_ns < kYears300Ns && std::abs(r.drift_ppb) < 1e6;
}

// Where at least `votes` intervals overlap: from the first such point to the last. None: high < low.
struct Hull {
  double low = HUGE_VAL, high = -HUGE_VAL;
};
Hull CoveredBy(const std::vector<Opinion>& opinions, int votes) {
  static thread_local std::vector<std::pair<double, int>> edges;
  edges.clear();
  for (const Opinion& o : opinions) {
    edges.emplace_back(o.value - o.tolerance, 1);
    edges.emplace_back(o.value + o.tolerance, -1);
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;  // touching intervals overlap
  });
  Hull hull;
  int covered = 0;
  for (const auto& [at, change] : edges) {
    if (change > 0 && covered + 1 == votes) hull.low = std::min(hull.low, at);
    if (change < 0 && covered == votes) hull.high = std::max(hull.high, at);
    covered += change;
  }
  return hull;
}

bool Overlap(const Opinion& a, const Opinion& b) { return std::abs(a.value - b.value) <= a.tolerance + b.tolerance; }

}  // namespace

Anchors::Known* Anchors::Find(uint64_t anchor_id) {
  for (Known& k : known_anchors_) {
    if (k.record.anchor_id == anchor_id) return &k;
  }
  return nullptr;
}

void Anchors::Advance(int64_t now_ns) {
  const int64_t passed = now_ns_ == INT64_MIN ? 0 : std::max<int64_t>(0, now_ns - now_ns_);
  now_ns_ = now_ns;
  passed_s_ = static_cast<double>(passed) * 1e-9;
  for (Known& k : known_anchors_) {
    k.remainder_ns += k.record.drift_ppb * passed_s_;
    const double whole = std::floor(k.remainder_ns);
    k.record.offset_ns += static_cast<int64_t>(whole);
    k.remainder_ns -= whole;
    k.record.bound_ns += Grown(kWanderPpb, passed_s_);
    k.record.age_ns += passed;
  }
  const auto old = [](const Known& k) { return k.record.age_ns >= kAnchorGoneNs; };
  known_anchors_.erase(std::remove_if(known_anchors_.begin(), known_anchors_.end(), old), known_anchors_.end());
}

// An alpha-beta filter over the readings: single ones are noisy, and others need the drift to carry ours forward.
void Anchors::AddOwn(uint64_t self, const AnchorReading& reading, int64_t fleet_ns) {
  const int64_t raw = reading.tai_ns - fleet_ns;
  Known* k = Find(self);
  if (k == nullptr || !own_.started) {
    if (k == nullptr) {
      if (known_anchors_.empty()) first_ns_ = now_ns_;
      known_anchors_.emplace_back();
      k = &known_anchors_.back();
      news_ns_ = now_ns_;
    }
    *k = Known{{self, raw, reading.bound_ns, 0, 0, 0}};
    own_ = {};
    own_.started = true;
    own_.last_ns = reading.local_ns;
    return;
  }
  const double passed_s = static_cast<double>(reading.local_ns - own_.last_ns) * 1e-9;
  if (passed_s <= 0) return;
  own_.last_ns = reading.local_ns;
  const double residual = static_cast<double>(raw - k->record.offset_ns) - k->remainder_ns;
  const double rate_ppb = Young(*k) ? kMostDriftPpb : kWanderPpb;
  if (std::abs(residual) > static_cast<double>(2 * reading.bound_ns) + rate_ppb * passed_s + kOwnStepNs) {
    if (Young(*k)) {
      own_.drift_ppb = own_.readings = 0;
    } else {
      Doubt(*k, std::llround(std::abs(residual)));
    }
    k->record = {self, raw, reading.bound_ns, own_.drift_ppb, 0, 0};
    k->remainder_ns = 0;
    return;
  }
  // Until the filter has settled it is a running fit of a line.
  const double n = ++own_.readings;
  const double alpha = std::max(kOffsetGain, 2 * (2 * n + 1) / ((n + 1) * (n + 2)));
  const double beta = std::max(kDriftGain, 6 / ((n + 1) * (n + 2)));
  k->remainder_ns += alpha * residual;
  own_.drift_ppb += beta * residual / passed_s;
  k->record.drift_ppb = std::clamp(own_.drift_ppb, -1e6, 1e6);
  k->record.bound_ns = reading.bound_ns + std::llround(std::abs((1 - alpha) * residual));
  k->record.age_ns = 0;
  k->record.hops = 0;
}

void Anchors::Add(uint64_t self, const AnchorRecord& told, int64_t age_ns, double apart_ns, double link_bound_ns) {
  if (!Sane(told) || told.anchor_id == self || std::abs(apart_ns) > 1e15) return;
  const double age_s = static_cast<double>(age_ns) * 1e-9;
  AnchorRecord r = told;
  r.offset_ns += std::llround(apart_ns + told.drift_ppb * age_s);
  r.bound_ns += std::llround(link_bound_ns) + Grown(kWanderPpb, age_s);
  r.age_ns += age_ns;
  ++r.hops;
  if (r.age_ns >= kAnchorGoneNs) return;
  // Bounds grow with age and with every link, so the least bound is the newest on the shortest way, and what we told
  // others never comes back to us as news.
  Known* k = Find(r.anchor_id);
  if (k != nullptr) {
    if (r.bound_ns < k->record.bound_ns || r.age_ns + kNewerNs < k->record.age_ns) Replace(*k, r);
    return;
  }
  if (known_anchors_.size() >= kMostAnchors) {
    const auto worst = std::max_element(known_anchors_.begin(), known_anchors_.end(), [](const auto& a, const auto& b) {
      return a.record.bound_ns < b.record.bound_ns;
    });
    if (worst->record.bound_ns <= r.bound_ns) return;
    known_anchors_.erase(worst);
  }
  if (known_anchors_.empty()) first_ns_ = now_ns_;
  news_ns_ = now_ns_;
  known_anchors_.push_back({r});
}

// What an anchor says now has to agree with what it said before.
void Anchors::Replace(Known& known, const AnchorRecord& r) {
  const int64_t apart = std::abs(r.offset_ns - known.record.offset_ns);
  if (apart > r.bound_ns + known.record.bound_ns + known.doubt_ns) Doubt(known, apart);
  known.record = r;
  known.remainder_ns = 0;
}

void Anchors::Doubt(Known& known, int64_t ns) {
  known.doubt_ns = std::min(known.doubt_ns + ns, kYears300Ns / 4);
  known.doubted_ns = now_ns_;
  known.agrees_since_ns = INT64_MAX;
}

void Anchors::Restore(Known& known, bool agrees) {
  if (!agrees) {
    known.agrees_since_ns = INT64_MAX;
  } else if (known.agrees_since_ns == INT64_MAX) {
    known.agrees_since_ns = now_ns_;
  }
  const bool agreed = agrees && now_ns_ - known.agrees_since_ns >= kAgreesAgainNs;
  if (agreed || now_ns_ - known.doubted_ns >= kDoubtNs) known.doubt_ns = 0;
}

void Anchors::Stepped(int64_t ns) {
  for (Known& k : known_anchors_) k.record.offset_ns -= ns;
  offset_ns_ -= ns;
}

void Anchors::SlopeIs(double ppb) {
  const double change = ppb - fleet_slope_ppb_;
  fleet_slope_ppb_ = ppb;
  for (Known& k : known_anchors_) k.record.drift_ppb -= change;
  own_.drift_ppb -= change;
}

// Our own anchor's drift is not known yet.
bool Anchors::Young(const Known& known) const { return known.record.hops == 0 && own_.readings < kLearntReadings; }

void Anchors::Move(double ns) {
  remainder_ns_ += ns;
  const double whole = std::floor(remainder_ns_);
  offset_ns_ += static_cast<int64_t>(whole);
  remainder_ns_ -= whole;
}

// Our TAI follows the majority's slowly, so that an anchor that comes or goes is no step for readers; it stays inside
// what the majority says.
void Anchors::Follow(int64_t centre_ns, double low_ns, double high_ns, double drift_ppb) {
  // What slewing would not mend in seconds is another majority, not noise.
  if (!known_ || std::abs(static_cast<double>(centre_ns - offset_ns_)) > kAnotherNs) {
    offset_ns_ = centre_ns;
    remainder_ns_ = 0;
  } else {
    remainder_ns_ += drift_ppb * passed_s_;
    const double apart = static_cast<double>(centre_ns - offset_ns_) - remainder_ns_;
    const double most = kMostAnchorSlewPpb * passed_s_;
    const double pull = apart * (1 - std::exp(-passed_s_ / kTimeConstantS));
    Move(std::clamp(pull, -most, most));
  }
  known_ = true;
  slope_ppb_ = drift_ppb;
  const auto from_centre = static_cast<double>(offset_ns_ - centre_ns);
  bound_ns_ = std::llround(std::ceil(std::max(high_ns - from_centre, from_centre - low_ns))) + 1;
}

void Anchors::Judge() {
  verdicts_.clear();
  std::vector<Known*> judged;
  for (Known& k : known_anchors_) {
    if (!Young(k)) judged.push_back(&k);
  }
  const size_t n = judged.size();
  if (n == 0) {
    known_ = false;
    bound_ns_ = -1;
    return;
  }
  const int64_t origin = judged.front()->record.offset_ns;
  std::vector<Opinion> opinions, voters;
  for (const Known* known : judged) {
    const Known& k = *known;
    const auto bound = static_cast<double>(k.record.bound_ns + k.doubt_ns);
    opinions.push_back(
        {static_cast<double>(k.record.offset_ns - origin) + k.remainder_ns, bound, 1 / (bound * bound + 1)});
    if (k.doubt_ns == 0) voters.push_back(opinions.back());
  }
  const Clique clique = FindClique(opinions, -1);
  const bool majority = 2 * static_cast<size_t>(clique.members) > n;
  double drift = 0, weights = 0;
  uint32_t hops = UINT32_MAX;
  for (size_t i = 0; i < n; ++i) {
    const AnchorRecord& r = judged[i]->record;
    AnchorVerdict v{
        r.anchor_id, Reason::kWaiting, false, judged[i]->doubt_ns > 0, r.offset_ns, std::llround(opinions[i].tolerance),
        r.hops};
    if (majority) v.reason = opinions[i].member ? Reason::kUsed : Reason::kFalseTicker;
    for (size_t k = 0; k < n; ++k) {
      if (Overlap(opinions[k], opinions[i])) continue;
      v.contradicts = true;
      v.smears |=
          v.reason != Reason::kUsed && !(majority && !opinions[k].member) && LeavesAsSmears(r, judged[k]->record);
    }
    verdicts_.push_back(v);
    if (!majority || !opinions[i].member) continue;
    drift += opinions[i].weight * r.drift_ppb;
    weights += opinions[i].weight;
    hops = std::min(hops, r.hops);
  }
  // Those whose vote was never in doubt say whether one that stepped is back.
  const Hull agreed = CoveredBy(voters, static_cast<int>(n / 2 + 1));
  for (size_t i = 0; i < n; ++i) {
    Known& k = *judged[i];
    if (k.doubt_ns == 0) continue;
    const double reach = static_cast<double>(k.record.bound_ns);
    const bool tells = agreed.high - agreed.low < static_cast<double>(k.doubt_ns);  // what it said before from what now
    Restore(k, tells && opinions[i].value + reach >= agreed.low && opinions[i].value - reach <= agreed.high);
  }
  const bool heard_out = now_ns_ - news_ns_ >= kQuietNs || now_ns_ - first_ns_ >= kFirstNs;
  if (!majority || !(known_ || heard_out)) {
    known_ = false;
    bound_ns_ = -1;
    return;
  }
  const Hull hull = CoveredBy(opinions, static_cast<int>((n + 1) / 2));
  const double centre = std::clamp(TrimmedMean(opinions, 0), clique.low, clique.high);
  const int64_t whole = origin + std::llround(centre);
  hops_ = hops;
  Follow(whole, hull.low - centre, hull.high - centre, weights > 0 ? drift / weights : 0);
}

bool Anchors::LeavesAsSmears(const AnchorRecord& a, const AnchorRecord& b) {
  const double rate_ppb = std::abs(a.drift_ppb - b.drift_ppb);
  const double apart_ns = std::abs(static_cast<double>(a.offset_ns - b.offset_ns));
  return rate_ppb >= kLeastSmearPpb && rate_ppb <= kMostSmearPpb && apart_ns <= kMostSmearNs;
}

AnchorRecord Anchors::Next() {
  if (known_anchors_.empty()) return {};
  const Known& k = known_anchors_[next_++ % known_anchors_.size()];
  if (Young(k)) return {};
  AnchorRecord r = k.record;
  if (r.hops == 0) r.bound_ns += k.doubt_ns;  // its own host tells of the step
  return r;
}

Reason Anchors::VerdictOf(uint64_t anchor_id) const {
  for (const AnchorVerdict& v : verdicts_) {
    if (v.anchor_id == anchor_id) return v.reason;
  }
  return Reason::kWaiting;
}

}  // namespace cw::sync
