// SPDX-License-Identifier: Apache-2.0
//
// What `cwlab traffic` sends: which hosts to which, how fast, for how long. Pure; cwlab_traffic.cc runs it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "userspace/lab/emulator.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

struct TrafficOptions {
  std::string pairs;        // "h0-h2,h1-h3"; empty: AcrossLeaves
  bool all_to_all = false;  // every host to every other one
  int qps = 2;              // queue pairs per pair of hosts
  double mbps = 10;         // of each queue pair, payload
  std::string time;         // "30s", "5m"; empty: until it is ended
};

// "h0-h2,h1-h3": from h0 to h2 and from h1 to h3. InvalidArgument names what is wrong and the hosts that there are.
absl::StatusOr<std::vector<JobPair>> ParsePairs(const std::string& text, int hosts);
// Each host to the one at its place on the next leaf; with one leaf, to its neighbour there.
std::vector<JobPair> AcrossLeaves(int leaves, int hosts_per_leaf);
// InvalidArgument: no time of at least a second. Empty: infinite.
absl::StatusOr<absl::Duration> ParseTrafficTime(const std::string& text);
// InvalidArgument: options that do not fit the fabric.
absl::StatusOr<JobSpec> TrafficJob(const TrafficOptions& options, const FabricSpec& fabric);

// One line of what went between two snapshots, `at` after the start.
std::string TrafficLine(const Snapshot& before, const Snapshot& now, absl::Duration at);
nlohmann::json TrafficTotals(const Snapshot& last, absl::Duration length);

}  // namespace cw::lab
