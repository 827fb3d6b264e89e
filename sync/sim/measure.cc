// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/measure.h"

#include <algorithm>
#include <cmath>

namespace cw::sync::sim {
namespace {

constexpr size_t kAllPairsUpTo = 24;
constexpr size_t kPairsPerSample = 300;
constexpr double kLeastSteadyNs = 10;   // "3 × steady" of a perfect fleet would be nothing
constexpr double kDisturbedFactor = 6;  // × a host's usual distance from the middle
constexpr double kLeastDisturbedNs = 200;
constexpr double kUntoldTimes = 10, kUntoldNs = 100'000;  // × error_est, and more: no matter of noise, nor of a slew
constexpr TrueNs kDisturbedFor = 5 * kSecond;             // after an event
constexpr TrueNs kAgreedFor = kSecond;

double Quantile(std::vector<float>& v, double p) {
  if (v.empty()) return 0;
  const auto k = static_cast<std::ptrdiff_t>(p * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), v.begin() + k, v.end());
  return static_cast<double>(v[static_cast<size_t>(k)]);
}

template <typename T>
double Share(T part, T of) {
  return static_cast<double>(part) / static_cast<double>(of);
}

double MiddleOf(const std::vector<HostSample>& samples) {
  std::vector<double> all;
  for (const HostSample& s : samples) {
    if (s.judged && s.synchronised) all.push_back(s.fleet_ns);
  }
  if (all.empty()) return 0;
  const auto mid = static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), all.begin() + mid, all.end());
  return all[static_cast<size_t>(mid)];
}

// What the hosts of one timeline have in common: their fleet times, and where their intervals are.
struct Common {
  std::vector<double> fleet_ns;
  double middle_ns = 0;  // their median
  double most_low = -HUGE_VAL, least_high = HUGE_VAL;
};

}  // namespace

Measure::Measure(const Fleet& fleet)
    : fleet_(fleet),
      random_(fleet.seed, 77),
      settle_(static_cast<TrueNs>(fleet.scenario.settle_s * kSecond)),
      last_quarter_(static_cast<TrueNs>(0.75 * fleet.scenario.seconds * kSecond)),
      deviation_ns_(fleet.hosts.size(), 0),
      disturbed_(fleet.hosts.size(), 0) {}

// Pairs of one part of the fleet. Few hosts: all pairs; many: as many random ones at each time, and the exact maximum.
void Measure::AddPairs(TrueNs t, const std::vector<HostSample>& samples, const std::vector<uint32_t>& group) {
  if (group.size() < 2) return;
  const bool settled = t >= settle_;
  const auto pair = [&](uint32_t i, uint32_t j) {
    const HostSample &a = samples[i], &b = samples[j];
    const double error = std::abs(a.fleet_ns - b.fleet_ns);
    now_.push_back(static_cast<float>(error));
    if (!settled) return;
    if (!fleet_.scenario.regions.empty() && fleet_.hosts[i].region == fleet_.hosts[j].region) {
      region_errors_.push_back(static_cast<float>(error));
    }
    pair_n_ += a.timeline == b.timeline;
    pair_held_ += a.timeline == b.timeline && error <= a.est_ns + b.est_ns;
    if (a.timeline == b.timeline) est_used_.push_back(static_cast<float>(error / std::max(1.0, a.est_ns + b.est_ns)));
    if (!a.nic_ns.empty() && !b.nic_ns.empty()) {
      const double na = a.nic_ns[random_.Below(a.nic_ns.size())], nb = b.nic_ns[random_.Below(b.nic_ns.size())];
      nic_errors_.push_back(static_cast<float>(std::abs(na - nb)));
    }
  };
  if (group.size() <= kAllPairsUpTo) {
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t j = i + 1; j < group.size(); ++j) pair(group[i], group[j]);
    }
  } else {
    for (size_t k = 0; k < kPairsPerSample; ++k) {
      const uint32_t i = group[random_.Below(group.size())], j = group[random_.Below(group.size())];
      if (i != j) pair(i, j);
    }
  }
  if (!settled) return;
  const auto by_fleet = [&](uint32_t i, uint32_t j) { return samples[i].fleet_ns < samples[j].fleet_ns; };
  const auto [low, high] = std::minmax_element(group.begin(), group.end(), by_fleet);
  max_ns_ = std::max(max_ns_, samples[*high].fleet_ns - samples[*low].fleet_ns);
}

// A bound is told of all synchronised hosts of the timeline, whoever hears whom: every host that says so is judged
// against the one in the middle of them. Two whose intervals have no time in common are a failure
// of its own: whoever compares their times cannot know.
void Measure::AddBounds(const std::vector<HostSample>& samples, bool settled) {
  std::map<uint64_t, Common> timelines;
  const auto counts = [](const HostSample& s) { return s.judged && s.synchronised; };
  for (const HostSample& s : samples) {
    if (!counts(s)) continue;
    Common& c = timelines[s.timeline];
    c.fleet_ns.push_back(s.fleet_ns);
    c.most_low = std::max(c.most_low, s.fleet_ns - s.bound_ns);
    c.least_high = std::min(c.least_high, s.fleet_ns + s.bound_ns);
  }
  for (auto& [timeline, c] : timelines) {
    const auto middle = c.fleet_ns.begin() + static_cast<std::ptrdiff_t>(c.fleet_ns.size() / 2);
    std::nth_element(c.fleet_ns.begin(), middle, c.fleet_ns.end());
    c.middle_ns = *middle;
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const HostSample& s = samples[i];
    if (!counts(s)) continue;
    if (settled) {
      ests_.push_back(static_cast<float>(s.est_ns));
      bounds_.push_back(static_cast<float>(s.bound_ns));
    }
    const Common& c = timelines[s.timeline];
    const double off = std::abs(s.fleet_ns - c.middle_ns);
    ++bound_n_;
    bound_hosts_.insert(i);
    bound_held_ += off <= s.bound_ns;
    over_bound_ns_ = std::max(over_bound_ns_, off - s.bound_ns);
    disjoint_ += s.fleet_ns - s.bound_ns > c.least_high || s.fleet_ns + s.bound_ns < c.most_low;
  }
}

// Camps that none of their hosts tells of: somewhere two hosts that can reach each other have no time in common, though
// each may be wrong by many times what it says of its likely error.
void Measure::AddUntold(TrueNs t, const std::vector<HostSample>& samples) {
  std::map<std::pair<uint8_t, uint64_t>, Common> camps;
  for (size_t i = 0; i < samples.size(); ++i) {
    const HostSample& s = samples[i];
    if (!s.judged || !s.synchronised) continue;
    Common& c = camps[{fleet_.hosts[i].group, s.timeline}];
    const double width = kUntoldTimes * s.est_ns + kUntoldNs;
    c.most_low = std::max(c.most_low, s.fleet_ns - width);
    c.least_high = std::min(c.least_high, s.fleet_ns + width);
  }
  const bool untold =
      std::any_of(camps.begin(), camps.end(), [](const auto& c) { return c.second.most_low > c.second.least_high; });
  if (untold && untold_at_ >= 0) untold_ += t - untold_at_;
  untold_at_ = t;
}

void Measure::AddVictims(const std::vector<HostSample>& samples, double middle_ns) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!fleet_.hosts[i].victim || !samples[i].up) continue;
    ++victims_;
    refused_ += !samples[i].synchronised;
    if (samples[i].synchronised) victim_ns_ = std::max(victim_ns_, std::abs(samples[i].fleet_ns - middle_ns));
  }
}

// The bound holds from the first moment that a host tells TAI; how many do, and how well, once the fleet has settled.
void Measure::AddTai(const std::vector<HostSample>& samples, bool settled) {
  for (const HostSample& s : samples) {
    if (!s.judged) continue;
    tai_n_ += settled;
    if (!s.tai_known) continue;
    ++tai_told_;
    const double off = std::abs(s.tai_error_ns);
    tai_held_ += off <= s.tai_bound_ns;
    over_tai_ns_ = std::max(over_tai_ns_, off - s.tai_bound_ns);
    if (!settled) continue;
    ++tai_known_;
    tai_errors_.push_back(static_cast<float>(off));
    tai_bounds_.push_back(static_cast<float>(s.tai_bound_ns));
  }
}

// Hosts that lose their state, their epoch or their place because something happened to others.
void Measure::AddDisturbed(TrueNs t, const std::vector<HostSample>& samples, double middle_ns) {
  const auto& all = fleet_.happenings;
  while (happening_ < all.size() && all[happening_].at <= t) {
    ++happening_;
    epoch_before_.clear();
    for (const HostSample& s : last_) epoch_before_.push_back(s.judged && s.synchronised ? s.epoch : UINT32_MAX);
    for (const Happening& h : all) {  // others, not those that it happened to
      if (h.at > t || t > h.at + kDisturbedFor + static_cast<TrueNs>(h.event.seconds * kSecond)) continue;
      for (const uint32_t i : h.hosts) {
        if (i < epoch_before_.size()) epoch_before_[i] = UINT32_MAX;
      }
    }
  }
  const bool after = happening_ > 0 && t < all[happening_ - 1].at + kDisturbedFor && !epoch_before_.empty();
  for (size_t i = 0; i < samples.size(); ++i) {
    const HostSample& s = samples[i];
    if (!s.judged) continue;
    const double off = std::abs(s.fleet_ns - middle_ns);
    if (!after) {
      if (t >= settle_ && s.synchronised) deviation_ns_[i] = std::max(deviation_ns_[i], off);
      continue;
    }
    if (epoch_before_[i] == UINT32_MAX) continue;
    const double limit = std::max(kLeastDisturbedNs, kDisturbedFactor * deviation_ns_[i]);
    if (!s.synchronised) disturbed_[i] |= 1;
    if (s.epoch != epoch_before_[i]) disturbed_[i] |= 2;
    if (off > limit) disturbed_[i] |= 4;
  }
}

// The fleet's rate is anybody's; what counts is how far a host leaves its own straight line.
void Measure::AddJumps(const std::vector<HostSample>& samples) {
  for (size_t i = 0; i < samples.size() && !before_last_.empty(); ++i) {
    const HostSample &a = before_last_[i], &b = last_[i], &c = samples[i];
    if (a.judged && b.judged && c.judged && a.synchronised && b.synchronised && c.synchronised) {
      jump_ns_ = std::max(jump_ns_, std::abs(c.fleet_ns - 2 * b.fleet_ns + a.fleet_ns));
    }
  }
}

void Measure::Add(TrueNs t, const std::vector<HostSample>& samples) {
  std::map<uint8_t, std::vector<uint32_t>> groups;
  bool all = true;
  int judged = 0, synchronised = 0;
  for (uint32_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].judged) continue;
    all = all && samples[i].synchronised;
    ++judged;
    synchronised += samples[i].synchronised;
    if (t >= settle_) {
      ++judged_;
      synchronised_ += samples[i].synchronised;
    }
    if (samples[i].synchronised) groups[fleet_.hosts[i].group].push_back(i);
  }
  now_.clear();
  for (const auto& [group, members] : groups) AddPairs(t, samples, members);
  if (t >= settle_) errors_.insert(errors_.end(), now_.begin(), now_.end());
  const bool none = now_.empty();
  moments_.push_back({t, Quantile(now_, 0.99), judged > 0 ? Share(synchronised, judged) : 0, all && !none});
  const double middle_ns = MiddleOf(samples);
  AddDisturbed(t, samples, middle_ns);
  AddBounds(samples, t >= settle_);
  AddUntold(t, samples);
  if (t >= settle_) AddJumps(samples);
  AddTai(samples, t >= settle_);
  if (t >= last_quarter_) AddVictims(samples, middle_ns);
  before_last_.swap(last_);
  last_ = samples;
}

void Measure::AddVerdict(bool about_liar, bool named) {
  (about_liar ? liar_verdicts_ : honest_verdicts_) += 1;
  (about_liar ? liars_named_ : accused_) += named;
}

// From when on all hosts are synchronised and within the limit for a second; the whole run if never.
double Measure::AgreedAfter(TrueNs from, double limit_ns) const {
  TrueNs since = -1;
  for (const Moment& m : moments_) {
    if (m.at < from) continue;
    if (!m.all_synchronised || m.worst_ns > limit_ns) {
      since = -1;
      continue;
    }
    if (since < 0) since = m.at;
    if (m.at - since >= kAgreedFor) return static_cast<double>(since - from) / kSecond;
  }
  return fleet_.scenario.seconds;
}

void Measure::Convergence(Metrics& m, double steady_ns) const {
  const double limit = 3 * std::max(steady_ns, kLeastSteadyNs);
  m["converge_s"] = AgreedAfter(0, limit);
  if (fleet_.happenings.empty()) return;
  const Happening& h = fleet_.happenings.back();
  m["reconverge_s"] =
      AgreedAfter(h.at + static_cast<TrueNs>(h.event.kind == EventKind::kRamp ? 0 : h.event.seconds * kSecond), limit);
}

Metrics Measure::Result() {
  Metrics m;
  if (!errors_.empty()) {
    // Steady: the last third.
    std::vector<float> late(errors_.begin() + static_cast<std::ptrdiff_t>(errors_.size() * 2 / 3), errors_.end());
    const double steady = Quantile(late, 0.99);
    m["steady_p99_ns"] = steady;
    m["p50_ns"] = Quantile(errors_, 0.5);
    m["p99_ns"] = Quantile(errors_, 0.99);
    m["max_ns"] = max_ns_;
    Convergence(m, steady);
    m["est_coverage"] = Share(pair_held_, pair_n_);
    m["est_p50_ns"] = Quantile(ests_, 0.5);
    m["est_ratio"] = m["est_p50_ns"] / std::max(1.0, m["p99_ns"]);
    m["est_used"] = Quantile(est_used_, 0.9999);
  }
  if (bound_n_ > 0) {
    m["bound_coverage"] = Share(bound_held_, bound_n_);
    m["bound_judged_hosts"] = static_cast<double>(bound_hosts_.size());
    m["bound_p50_ns"] = Quantile(bounds_, 0.5);
    m["bound_samples"] = static_cast<double>(bound_n_);
    m["over_bound_ns"] = std::max(0.0, over_bound_ns_);
  }
  if (judged_ > 0) m["synchronised"] = Share(synchronised_, judged_);
  m["untold_s"] = static_cast<double>(untold_) / kSecond;
  m["disjoint"] = static_cast<double>(disjoint_);
  m["jump_ns"] = jump_ns_;
  const auto disturbed = [&](int bits) {
    return static_cast<double>(
        std::count_if(disturbed_.begin(), disturbed_.end(), [&](int d) { return (d & bits) != 0; }));
  };
  m["disturbed"] = disturbed(7);
  m["disturbed_state"] = disturbed(1);
  m["disturbed_epoch"] = disturbed(2);
  m["disturbed_place"] = disturbed(4);
  if (liar_verdicts_ > 0) m["liars_named"] = Share(liars_named_, liar_verdicts_);
  if (honest_verdicts_ > 0) m["accused"] = Share(accused_, honest_verdicts_);
  const auto& events = fleet_.scenario.events;
  const bool lies = std::any_of(events.begin(), events.end(), [](const Event& e) { return e.kind == EventKind::kLie; });
  if (victims_ > 0 || lies) {  // liars may be so few that nobody has too many
    m["refused"] = victims_ > 0 ? Share(refused_, victims_) : 1;
    m["victim_ns"] = victim_ns_;
  }
  if (!fleet_.scenario.anchors.empty() && tai_n_ > 0) {
    m["tai_known"] = Share(tai_known_, tai_n_);
    m["tai_coverage"] = tai_told_ == 0 ? 1 : Share(tai_held_, tai_told_);  // who tells nothing tells nothing false
    m["over_tai_ns"] = std::max(0.0, over_tai_ns_);
    if (tai_known_ > 0) {
      m["tai_p99_ns"] = Quantile(tai_errors_, 0.99);
      m["tai_bound_p50_ns"] = Quantile(tai_bounds_, 0.5);
    }
  }
  if (bad_anchor_verdicts_ > 0) m["anchors_named"] = Share(bad_anchors_named_, bad_anchor_verdicts_);
  if (!region_errors_.empty()) m["region_p99_ns"] = Quantile(region_errors_, 0.99);
  if (!nic_errors_.empty()) m["nic_p99_ns"] = Quantile(nic_errors_, 0.99);
  return m;
}

}  // namespace cw::sync::sim
