// SPDX-License-Identifier: Apache-2.0
//
// A host's (or NIC's) local clock of known error: offset, drift, random walk of the rate, temperature, steps, ramps,
// jumps of the rate. Every change is given before the first question, so the answer to a question does not depend on
// those before it. Times are ns of true time since the start of the simulation. One thread per object.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/sim/random.h"

namespace cw::sync::sim {

using TrueNs = int64_t;
inline constexpr TrueNs kSecond = 1'000'000'000;
inline constexpr int64_t kLocalEpochNs = 100 * kSecond;  // so that no clock is negative

struct ClockSpec {
  double offset_ns = 0;
  double drift_ppb = 0;
  double wander_ppb = 0;       // random walk of the rate: standard deviation after a second
  double temperature_ppb = 0;  // amplitude of a sine of the rate
  double temperature_period_s = 600;
  double temperature_phase = 0;  // in turns
};

class SimClock {
 public:
  SimClock(const ClockSpec& spec, Random random) : spec_(spec), random_(random) {}

  void Step(TrueNs at, double ns);
  void Ramp(TrueNs at, double ppb, double over_s);  // the rate changes by ppb, evenly over so many seconds

  void Jump(TrueNs at, double ppb);  // the rate changes by ppb at once

  double ErrorNs(TrueNs t) const;  // local − true
  double RatePpb(TrueNs t) const;
  double StepsWithin(TrueNs after, TrueNs until) const;                       // ns stepped in (after, until]
  TrueNs LastStepAt(TrueNs t) const;                                          // −1: none yet
  int StepsUntil(TrueNs t) const;                                             // how many
  bool Calm() const { return spec_.temperature_ppb <= 0 && ramps_.empty(); }  // the rate hardly changes
  int64_t Local(TrueNs t) const { return kLocalEpochNs + t + static_cast<int64_t>(std::llround(ErrorNs(t))); }

 private:
  struct Change {
    TrueNs at;
    double value;
    double over_s;
  };
  struct Knot {  // once a second; the rate is linear in between
    double phase_ns;
    double rate_ppb;
  };
  double RateAtKnot(size_t k) const;
  void Extend(size_t knots) const;

  ClockSpec spec_;
  mutable Random random_;
  mutable double walk_ppb_ = 0;
  std::vector<Change> steps_, ramps_, jumps_;
  mutable std::vector<Knot> knots_;
};

}  // namespace cw::sync::sim
