// SPDX-License-Identifier: Apache-2.0
//
// How well the production findings name faults that a made-up fleet has (fleet_world.h). Worlds are apart from each
// other and run on all cores; the result is the same for the same seed.
//
// A finding is right where its cause is the fault's and its scope names it, or is one of at most four that it says
// cannot be told apart. Where switches answer no traces "paths dead" is right, too, and so is a longer such list:
// there nothing has to be known, and nothing may be wrong.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/fleet_world.h"

namespace cw::sim {

// Of one kind of fault, or of one fabric.
struct FleetScore {
  int faults = 0, found = 0;
  int false_findings = 0;       // that no fault explains, in the runs of this kind
  int findings = 0;             // in all
  int ended = 0;                // found, and over after the fault's end
  std::vector<double> seconds;  // from fault to finding
  double Quantile(double p);
  void Add(const FleetScore& more);
};

struct FleetSimResult {
  std::array<FleetScore, FleetFault::kKinds> by_kind;
  std::map<std::string, FleetScore> by_shape;
  std::array<int, fleet::kFleetCauses + 1> right{}, wrong{};  // findings by cause
  std::vector<std::string> complaints;                        // the first few that went wrong
  double seconds = 0;                                         // simulated
  int evaluations = 0;
  double evaluate_ms = 0;  // all of them
  uint64_t refused = 0;    // batches: the simulator is wrong
  double Precision(fleet::Cause cause) const;
  // The least share of faults found, of any kind that there was, and of findings that are right, of any cause.
  double LeastRecall() const;
  double LeastPrecision() const;
  std::string Table();
  void Add(const FleetSimResult& more);
};

// kinds: numbers; none: all.
FleetSimResult SimulateFleet(const std::vector<FleetShape>& shapes, int faults_of_kind, uint64_t seed,
                             const std::vector<int>& kinds = {});
// A day without a fault; what was found.
FleetSimResult SimulateHealthy(const FleetShape& shape, int seconds, uint64_t seed);

}  // namespace cw::sim
