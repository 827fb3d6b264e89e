// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with clocks of known error and probes between them, for tests of the clock. Each host probes each slot once
// per round; every slot and direction has its own queue. The hosts exchange low points every 100 ms.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sync/pair_estimator.h"
#include "tests/unit/sync_noise_sim.h"

namespace cw::sync {

struct ChannelSpec {
  SimClock ours, theirs;
  int slots = 8;
  double round_ms = 1;  // each slot is probed once per round
  double load = 0;      // mean utilisation of each queue
  Traffic traffic = Traffic::kPoisson;
  double packet_ns = 164e3;  // 4 KiB at 200 Mbit/s
  StampNoise noise;
  double forward_base_ns = 5200;  // fastest slot
  double reverse_base_ns = 5200;
  double slot_spread_ns = 0;  // slot s is longer by s × this, both ways
  double seconds = 20;
  double check_ms = 10;
  bool remote_points = true;                                      // the peer sends its low points …
  bool remote_trips = true;                                       // … with their replies
  std::function<bool(double true_s)> forward_lost, reverse_lost;  // empty = never
  std::function<bool(double true_s)> asleep;                      // our agent is not scheduled; empty = never
  EstimatorOptions options;
  int seldom = 1;  // PairEstimator::FitSeldom
  uint64_t seed = 1;
};

struct Checked {
  double true_s = 0;
  int64_t error_ns = 0;  // estimate − truth
  Estimate estimate;
};

// Runs the exchange; our estimate is checked every check_ms, from the moment that it is known.
std::vector<Checked> RunChannel(const ChannelSpec& spec);

// The p-quantile (0–1) of |error| from `from_s` on, ns.
int64_t ErrorQuantile(const std::vector<Checked>& run, double p, double from_s);

// How the checks from `from_s` on went; runs add up.
struct Tally {
  std::vector<int64_t> errors, error_ests;
  int64_t outside_error_est = 0, outside_bound = 0, not_synchronised = 0;

  void Add(const std::vector<Checked>& run, double from_s);
  int64_t checks() const { return static_cast<int64_t>(errors.size()); }
  int64_t Error(double p) const;     // the p-quantile of |error|, ns
  int64_t ErrorEst(double p) const;  // … of error_est
  double coverage() const;           // share of checks within error_est
  std::string Text() const;          // one line
};

// Drift that changes at random moments, every `every_s` in the mean, to anything within ± ppm.
std::vector<SimClock::Change> PiecewiseDrift(double offset_ns, double ppm, double every_s, double seconds,
                                             uint64_t seed);

}  // namespace cw::sync
