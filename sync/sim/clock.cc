// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/clock.h"

#include <algorithm>
#include <cmath>

namespace cw::sync::sim {

void SimClock::Step(TrueNs at, double ns) { steps_.push_back({at, ns, 0}); }

void SimClock::Ramp(TrueNs at, double ppb, double over_s) { ramps_.push_back({at, ppb, over_s}); }

void SimClock::Jump(TrueNs at, double ppb) { jumps_.push_back({at, ppb, 0}); }

double SimClock::RateAtKnot(size_t k) const {
  const auto t_s = static_cast<double>(k);
  double rate = spec_.drift_ppb + walk_ppb_;
  const double turns = t_s / std::max(1.0, spec_.temperature_period_s) + spec_.temperature_phase;
  rate += spec_.temperature_ppb * std::sin(6.283185307179586 * turns);
  for (const Change& r : ramps_) {
    const double since_s = t_s - static_cast<double>(r.at) / kSecond;
    if (since_s > 0) rate += r.value * (r.over_s > 0 ? std::min(1.0, since_s / r.over_s) : 1.0);
  }
  return rate;
}

void SimClock::Extend(size_t knots) const {
  if (knots_.empty()) knots_.push_back({spec_.offset_ns, RateAtKnot(0)});
  while (knots_.size() < knots) {
    const Knot& last = knots_.back();
    if (spec_.wander_ppb > 0) walk_ppb_ += random_.Normal(spec_.wander_ppb);
    const double rate = RateAtKnot(knots_.size());
    knots_.push_back({last.phase_ns + (last.rate_ppb + rate) / 2, rate});
  }
}

double SimClock::ErrorNs(TrueNs t) const {
  const auto k = static_cast<size_t>(t / kSecond);
  if (knots_.size() < k + 2) Extend(k + 2);
  const double x = static_cast<double>(t - static_cast<TrueNs>(k) * kSecond) / kSecond;
  const Knot &a = knots_[k], &b = knots_[k + 1];
  double error = a.phase_ns + x * (a.rate_ppb + x * (b.rate_ppb - a.rate_ppb) / 2) + StepsWithin(-1, t);
  for (const Change& j : jumps_) error += j.value * static_cast<double>(std::max<TrueNs>(0, t - j.at)) / kSecond;
  return error;
}

double SimClock::RatePpb(TrueNs t) const {
  const auto k = static_cast<size_t>(t / kSecond);
  if (knots_.size() < k + 2) Extend(k + 2);
  const double x = static_cast<double>(t - static_cast<TrueNs>(k) * kSecond) / kSecond;
  double rate = knots_[k].rate_ppb + x * (knots_[k + 1].rate_ppb - knots_[k].rate_ppb);
  for (const Change& j : jumps_) rate += t > j.at ? j.value : 0;
  return rate;
}

double SimClock::StepsWithin(TrueNs after, TrueNs until) const {
  double sum = 0;
  for (const Change& s : steps_) sum += s.at > after && s.at <= until ? s.value : 0;
  return sum;
}

int SimClock::StepsUntil(TrueNs t) const {
  int n = 0;
  for (const Change& s : steps_) n += s.at <= t;
  return n;
}

TrueNs SimClock::LastStepAt(TrueNs t) const {
  TrueNs last = -1;
  for (const Change& s : steps_) {
    if (s.at <= t) last = std::max(last, s.at);
  }
  return last;
}

}  // namespace cw::sync::sim
