// SPDX-License-Identifier: Apache-2.0
//
// How well the production findings name faults that a made-up fleet has (fleet_world.h). One thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/fleet_world.h"

namespace cw::sim {

// Of one kind of fault.
struct FleetScore {
  int faults = 0, found = 0;
  int false_findings = 0;       // that no fault explains, in the runs of this kind
  int findings = 0;             // in all
  int ended = 0;                // found, and over after the fault's end
  std::vector<double> seconds;  // from fault to finding
  double Quantile(double p);
};

struct FleetSimResult {
  std::array<FleetScore, FleetFault::kKinds> by_kind;
  std::array<int, fleet::kFleetCauses + 1> right{}, wrong{};  // findings by cause
  std::vector<std::string> complaints;                        // the first few that went wrong
  double seconds = 0;                                         // simulated
  int evaluations = 0;
  double evaluate_ms = 0;  // all of them
  double Precision(fleet::Cause cause) const;
  // The least share of faults found, of any kind that there was, and of findings that are right, of any cause.
  double LeastRecall() const;
  double LeastPrecision() const;
  std::string Table();
};

FleetSimResult SimulateFleet(const std::vector<FleetShape>& shapes, int faults_of_kind, uint64_t seed);
// A day without a fault; what was found.
FleetSimResult SimulateHealthy(const FleetShape& shape, int seconds, uint64_t seed);

}  // namespace cw::sim
