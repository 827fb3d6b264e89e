// SPDX-License-Identifier: Apache-2.0
//
// Scenario files: an experiment as data (userspace/lab/scenarios/*.json), run on a fabric of its own.
//   kind      "failover", "contention" or "clock"
//   fabric    {spines, hosts_per_leaf, link_mbps, ecmp_seed}; leaves are two
//   mode      "observe", "protect", "optimize", or "none": no agents, plain ECMP
//   failover: cut ("forward", "reverse", "both"), cuts, flows, background (share of every uplink), seed
//   clock: hidden clocks {offset_s, drift_ppm, segment_s: a new drift so often}, load (share of every uplink), seconds,
//     seed; each host's clock is wrong by its own part of these
//   contention: flows_per_sender, seconds (what the best assignment needs), seed
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/report.h"

namespace cw::lab {

struct ScenarioOutcome {
  Report report;
  bench::Report result;
};

// InvalidArgument names the file and the key. `lab` is the fabric's name.
absl::StatusOr<ScenarioOutcome> RunScenario(const std::string& file, const std::string& lab);

}  // namespace cw::lab
