// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with clocks of known error and probes between them, for tests of the clock. Each host probes each slot once
// per millisecond; every slot and direction has its own queue. The hosts exchange low points every 100 ms.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "sync/pair_estimator.h"

namespace cw::sync {

// A clock: an offset and a rate error that change at given true times.
struct SimClock {
  struct Change {
    double at_s;
    double step_ns;    // added at once
    double drift_ppm;  // from here on
  };
  std::vector<Change> changes;  // by time; none = true time

  double ErrorNs(double true_s) const;
  int64_t At(double true_s) const;  // true time starts at 100 s, so that no clock is negative
};

struct ChannelSpec {
  SimClock ours, theirs;
  int slots = 8;
  double load = 0;                // mean utilisation of each queue
  double forward_base_ns = 5200;  // fastest slot
  double reverse_base_ns = 5200;
  double slot_spread_ns = 0;  // slot s is longer by s × this, both ways
  double seconds = 20;
  bool remote_points = true;                                      // the peer sends its low points
  std::function<bool(double true_s)> forward_lost, reverse_lost;  // empty = never
  uint64_t seed = 1;
};

struct Checked {
  double true_s = 0;
  int64_t error_ns = 0;  // estimate − truth
  Estimate estimate;
};

// Runs the exchange; our estimate is checked every 10 ms.
std::vector<Checked> RunChannel(const ChannelSpec& spec);

// The p-quantile (0–1) of |error| from `from_s` on, ns.
int64_t ErrorQuantile(const std::vector<Checked>& run, double p, double from_s);

}  // namespace cw::sync
