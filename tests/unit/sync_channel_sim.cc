// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sync_channel_sim.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <queue>

namespace cw::sync {
namespace {

constexpr double kEpochS = 100;
constexpr double kStackNs = 190;  // a reply is stamped at another depth of the stack than a probe

// One slot in one direction.
class Path {
 public:
  Path(double base_ns, double load, uint64_t seed) : base_ns_(base_ns), load_(load), random_(seed) {}

  // Once per millisecond.
  void Advance() {
    wait_ns_ = std::max(0.0, wait_ns_ - 1e6);
    // The fastest packets of a real path wander by some 100 ns over seconds: caches, power states, placement.
    wander_ns_ += std::normal_distribution<double>(0, 2)(random_) - wander_ns_ / 2000;
    if (load_ > 0 && Uniform() < 0.4) wait_ns_ += Exponential(load_ / 0.4 * 1e6);
  }
  double DelayNs(bool first_of_burst) {
    double d = base_ns_ + wander_ns_ + std::abs(std::normal_distribution<double>(0, 100)(random_)) + Exponential(200);
    if (Uniform() < 0.01) d += Exponential(50e3);  // the machine was busy
    return d + (first_of_burst ? 600 : 0) + wait_ns_;
  }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  double Exponential(double mean) { return -mean * std::log(1 - Uniform()); }

  double base_ns_, load_, wait_ns_ = 0, wander_ns_ = 0;
  std::mt19937_64 random_;
};

// A probe whose reply is under way; it is known when the reply arrives.
struct Arrival {
  double at_s;
  int64_t t[4];
  bool operator<(const Arrival& o) const { return at_s > o.at_s; }
};
using Arrivals = std::priority_queue<Arrival>;

void Deliver(Arrivals& arrivals, double until_s, PairEstimator& to) {
  for (; !arrivals.empty() && arrivals.top().at_s <= until_s; arrivals.pop()) {
    const auto& t = arrivals.top().t;
    to.AddProbe(t[0], t[1], t[2], t[3]);
  }
}

// A probe from the host with clock `from` at true time t_s, turned round by the one with clock `to`.
Arrival Probe(const SimClock& from, const SimClock& to, double t_s, double out_ns, double back_ns) {
  const double t2 = t_s + out_ns * 1e-9, t3 = t2 + 2e-7, t4 = t3 + (back_ns - 2 * kStackNs) * 1e-9;
  return {t4, {from.At(t_s), to.At(t2), to.At(t3), from.At(t4)}};
}

}  // namespace

double SimClock::ErrorNs(double true_s) const {
  double error = 0, drift_ppm = 0, since = 0;
  for (const Change& c : changes) {
    if (c.at_s > true_s) break;
    error += (c.at_s - since) * drift_ppm * 1e3 + c.step_ns;
    drift_ppm = c.drift_ppm;
    since = c.at_s;
  }
  return error + (true_s - since) * drift_ppm * 1e3;
}

int64_t SimClock::At(double true_s) const {
  return std::llround((kEpochS + true_s) * 1e9) + std::llround(ErrorNs(true_s));
}

std::vector<Checked> RunChannel(const ChannelSpec& spec) {
  std::vector<Path> forward, reverse;
  for (int s = 0; s < spec.slots; ++s) {
    forward.emplace_back(spec.forward_base_ns + s * spec.slot_spread_ns, spec.load, spec.seed * 1000 + 2 * s);
    reverse.emplace_back(spec.reverse_base_ns + s * spec.slot_spread_ns, spec.load, spec.seed * 1000 + 2 * s + 1);
  }
  PairEstimator a, b;
  Arrivals to_a, to_b;
  std::vector<Checked> run;
  const auto lost = [](const auto& rule, double t) { return rule && rule(t); };
  for (int ms = 0; ms < static_cast<int>(spec.seconds * 1000); ++ms) {
    for (int s = 0; s < spec.slots; ++s) {
      Path &f = forward[s], &r = reverse[s];
      f.Advance();
      r.Advance();
      const double t = ms * 1e-3 + s * 5e-6;
      if (lost(spec.forward_lost, t) || lost(spec.reverse_lost, t)) continue;
      to_a.push(Probe(spec.ours, spec.theirs, t, f.DelayNs(s == 0), r.DelayNs(false)));
      to_b.push(Probe(spec.theirs, spec.ours, t + 2e-4, r.DelayNs(s == 0), f.DelayNs(false)));
    }
    const double now = (ms + 1) * 1e-3;
    Deliver(to_a, now, a);
    Deliver(to_b, now, b);
    if (ms % 100 == 57 && spec.remote_points) {
      const auto points = b.TakeOutbound();
      if (!lost(spec.reverse_lost, now)) {
        for (const Point& p : points) a.AddRemote(p);
      }
      b.At(spec.theirs.At(now));
    }
    if (ms % 10 == 9) {
      const Estimate e = a.At(spec.ours.At(now));
      run.push_back({now, e.offset_ns - (spec.theirs.At(now) - spec.ours.At(now)), e});
    }
  }
  return run;
}

int64_t ErrorQuantile(const std::vector<Checked>& run, double p, double from_s) {
  std::vector<int64_t> errors;
  for (const Checked& c : run) {
    if (c.true_s >= from_s) errors.push_back(std::llabs(c.error_ns));
  }
  std::sort(errors.begin(), errors.end());
  return errors.empty() ? -1 : errors[static_cast<size_t>(p * static_cast<double>(errors.size() - 1))];
}

}  // namespace cw::sync
