// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sync_channel_sim.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <queue>

namespace cw::sync {
namespace {

constexpr double kStackNs = 190;  // a reply is stamped at another depth of the stack than a probe

// One slot in one direction.
struct Path {
  SimStamps stamps;
  SimQueue queue;

  double DelayNs(double true_s, bool first_of_burst) {
    return stamps.DelayNs(true_s, first_of_burst) + queue.WaitNs(true_s);
  }
};

// A probe whose reply is under way; it is known when the reply arrives.
struct Arrival {
  double at_s = 0;
  int64_t t[4] = {};
  bool operator<(const Arrival& o) const { return at_s > o.at_s; }
};
using Arrivals = std::priority_queue<Arrival>;

void Deliver(Arrivals& arrivals, double until_s, PairEstimator& to) {
  for (; !arrivals.empty() && arrivals.top().at_s <= until_s; arrivals.pop()) {
    const Arrival& a = arrivals.top();
    to.AddProbe(a.t[0], a.t[1], a.t[2], a.t[3]);
  }
}

class Exchange {
 public:
  explicit Exchange(const ChannelSpec& spec) : spec_(spec), a_(spec.options), b_(spec.options) {
    a_.FitSeldom(spec.seldom);
    b_.FitSeldom(spec.seldom);
    for (int s = 0; s < spec.slots; ++s) {
      const double longer = s * spec.slot_spread_ns;
      forward_.push_back(MakePath(spec.forward_base_ns + longer, 2 * s));
      reverse_.push_back(MakePath(spec.reverse_base_ns + longer, 2 * s + 1));
    }
  }

  std::vector<Checked> Run() {
    std::vector<Checked> run;
    double next_round = 0, next_check = spec_.check_ms;
    for (int ms = 0; ms < static_cast<int>(spec_.seconds * 1000); ++ms) {
      for (; next_round < ms + 1; next_round += spec_.round_ms) Round(next_round * 1e-3);
      const double now = (ms + 1) * 1e-3;
      if (!Rule(spec_.asleep, now)) Deliver(to_a_, now, a_);
      Deliver(to_b_, now, b_);
      if (ms % 100 == 57 && spec_.remote_points) Message(now);
      if (ms + 1 < next_check) continue;
      next_check += spec_.check_ms;
      if (Rule(spec_.asleep, now)) continue;
      const Estimate e = a_.At(spec_.ours.At(now));
      if (e.state == SyncState::kUnknown) continue;
      run.push_back({now, e.offset_ns - (spec_.theirs.At(now) - spec_.ours.At(now)), e});
    }
    return run;
  }

 private:
  static bool Rule(const std::function<bool(double)>& rule, double t) { return rule && rule(t); }

  Path MakePath(double base_ns, int number) const {
    const uint64_t seed = spec_.seed * 1000 + number;
    const uint64_t common = spec_.seed * 1000 + 500;  // the machine, not the path
    return {SimStamps(spec_.noise, base_ns, seed, common),
            SimQueue(spec_.traffic, spec_.load, spec_.packet_ns, seed + 700)};
  }

  // The peer's round comes a little later than ours, with a phase that moves.
  void Round(double t) {
    const double theirs = t + 1e-4 + 2e-4 * std::fmod(t * 0.37, 1.0);
    for (int s = 0; s < spec_.slots; ++s) Probe(spec_.ours, spec_.theirs, forward_[s], reverse_[s], s, t, to_a_);
    for (int s = 0; s < spec_.slots; ++s) Probe(spec_.theirs, spec_.ours, reverse_[s], forward_[s], s, theirs, to_b_);
  }

  void Probe(const SimClock& from, const SimClock& to, Path& out, Path& back, int slot, double t, Arrivals& arrivals) {
    const bool ours = &from == &spec_.ours;
    const double t1 = t + slot * 5e-6;
    const double t2 = t1 + out.DelayNs(t1, slot == 0) * 1e-9, t3 = t2 + 2e-7;
    if (Rule(ours ? spec_.forward_lost : spec_.reverse_lost, t1)) return;
    if (Rule(ours ? spec_.reverse_lost : spec_.forward_lost, t3)) return;
    const double t4 = t3 + (back.DelayNs(t3, false) - 2 * kStackNs) * 1e-9;
    arrivals.push({t4, {from.At(t1), to.At(t2), to.At(t3), from.At(t4)}});
  }

  void Message(double now) {
    const auto points = b_.TakeOutbound();
    const auto trips = b_.TakeOutboundTrips();
    if (!Rule(spec_.reverse_lost, now)) {
      for (const Point& p : points) {
        if (!spec_.remote_trips) a_.AddRemote(p);
      }
      for (const Trip& t : trips) {
        if (spec_.remote_trips) a_.AddRemoteProbe(t);
      }
    }
    b_.At(spec_.theirs.At(now));
  }

  const ChannelSpec& spec_;
  std::vector<Path> forward_, reverse_;
  PairEstimator a_, b_;
  Arrivals to_a_, to_b_;
};

int64_t Quantile(std::vector<int64_t> v, double p) {
  if (v.empty()) return -1;
  const auto k = static_cast<std::ptrdiff_t>(p * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), v.begin() + k, v.end());
  return v[static_cast<size_t>(k)];
}

}  // namespace

std::vector<Checked> RunChannel(const ChannelSpec& spec) { return Exchange(spec).Run(); }

int64_t ErrorQuantile(const std::vector<Checked>& run, double p, double from_s) {
  std::vector<int64_t> errors;
  for (const Checked& c : run) {
    if (c.true_s >= from_s) errors.push_back(std::llabs(c.error_ns));
  }
  return Quantile(std::move(errors), p);
}

void Tally::Add(const std::vector<Checked>& run, double from_s) {
  for (const Checked& c : run) {
    if (c.true_s < from_s) continue;
    const int64_t error = std::llabs(c.error_ns);
    errors.push_back(error);
    error_ests.push_back(c.estimate.error_est_ns);
    outside_error_est += error > c.estimate.error_est_ns;
    outside_bound += error > c.estimate.bound_ns;
    not_synchronised += c.estimate.state != SyncState::kSynchronised;
  }
}

int64_t Tally::Error(double p) const { return Quantile(errors, p); }
int64_t Tally::ErrorEst(double p) const { return Quantile(error_ests, p); }

double Tally::coverage() const {
  return 1 - static_cast<double>(outside_error_est) / static_cast<double>(std::max<int64_t>(1, checks()));
}

std::string Tally::Text() const {
  char text[200];
  std::snprintf(text, sizeof text,
                "|error| p50 %d p99 %d max %d ns; error_est p50 %d p99 %lld, holds %.4f %%; outside bound %d of %d",
                static_cast<int>(Error(0.5)), static_cast<int>(Error(0.99)), static_cast<int>(Error(1)),
                static_cast<int>(ErrorEst(0.5)), static_cast<long long>(ErrorEst(0.99)), 100 * coverage(),
                static_cast<int>(outside_bound), static_cast<int>(checks()));
  return text;
}

std::vector<SimClock::Change> PiecewiseDrift(double offset_ns, double ppm, double every_s, double seconds,
                                             uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> rate(-ppm, ppm);
  std::exponential_distribution<double> pause(1 / every_s);
  std::vector<SimClock::Change> changes{{0, offset_ns, rate(random)}};
  for (double t = pause(random); t < seconds; t += pause(random)) changes.push_back({t, 0, rate(random)});
  return changes;
}

}  // namespace cw::sync
