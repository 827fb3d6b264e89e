// SPDX-License-Identifier: Apache-2.0
//
// Long flows that may collide on a spine: what the slowest of them gets, against the best static assignment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

enum class Workload {
  kPairwise,     // each host of leaf 0 sends to its partner on leaf 1
  kTwoAllToAll,  // two jobs, each an all-to-all among every other host of both leaves, in rounds with a barrier
  kAllToAll,     // one job of all hosts
  kRing,         // host to host around a ring whose every hop is between the leaves: as kPairwise, both ways
  kAsymmetric,   // kPairwise, and the last spine's links have half of the rate
};

struct ContentionSpec {
  TestbedSpec testbed;
  Workload workload = Workload::kPairwise;
  absl::Duration flowlet_gap;  // > 0: leaves spread flowlets in place of hashing
  int flows_per_sender = 2;    // each host of leaf 0 sends so many flows to its partner on leaf 1
  // Each flow's bytes are what the best assignment delivers in this time, so completion times compare directly.
  absl::Duration best_duration = absl::Seconds(20);
  // The agents run for so long before the first flow, so that flows are new to them, as jobs are on a host in service.
  absl::Duration agents_first = absl::Seconds(4);
  absl::Duration measure_from = absl::Seconds(2);  // goodput counts from here on
  int rounds = 10;                                 // kTwoAllToAll, kAllToAll
  double best_mbps = 0;                            // what the best assignment was measured to give; 0: not known
  // Without agents: each flow has, in place of its own, a source port that takes it where it gets most, with all flows
  // known and the switches' hash too. What no other fixed assignment of whole flows beats.
  bool best_static = false;
  uint64_t seed = 1;
};

// A move as an agent tells it.
struct MadeMove {
  int64_t at_ns = 0;   // CLOCK_MONOTONIC
  std::string flow;    // its id
  std::string reason;  // "idle", "held", "gap", "forced", "path dead", ...
};

struct MovesOfKind {
  uint64_t moves = 0;
  uint64_t naks = 0;  // of the moved flow, from 30 ms before the move was told to 100 ms after, or to its next one
};

// By reason. naks_ns: of each flow by its id, in order. Pure.
std::map<std::string, MovesOfKind> CountByKind(std::vector<MadeMove> moves,
                                               const std::map<std::string, std::vector<int64_t>>& naks_ns);

struct ContentionResult {
  uint64_t seed = 0;
  std::vector<int> initial_flows_per_spine;  // by kernel ECMP on native ports
  std::vector<int> final_flows_per_spine;
  std::vector<double> goodput_mbps;  // per flow, from measure_from to the first flow's completion
  double goodput_min_mbps = 0;
  double completion_s = 0;  // of the slowest flow
  // From the first packet until the slowest flow's goodput, over 2 s, reaches 95 % of the best and never falls below
  // again; −1: it did not, or best_mbps is not known. Jobs with rounds: not told, since flows stand at barriers.
  double settle_s = -1;
  double owd_p50_us = 0, owd_p99_us = 0;  // of data packets, kernel stamps at both ends
  double worst_link_share = 0;            // load of the fullest uplink ÷ its rate, from measure_from on
  uint64_t moves = 0, naks = 0, icrc_errors = 0;
  std::map<std::string, MovesOfKind> kinds;  // of the moves, by reason
  int flows_lost = 0;
  Phase phase;
  Chart goodput;                // of each queue pair, from the start on
  std::vector<Mark> decisions;  // of the agents, with their reasons
};

// The slowest flow's goodput under the best assignment of whole flows to spines, from the links' rates and the frame
// overhead: an upper limit that no assignment can beat. Jobs with rounds: of the flows between leaves, while they send.
double BestGoodputMbps(const ContentionSpec& spec);

// Flows stand at barriers between the workload's rounds.
bool HasRounds(Workload workload);

// Goodput of each flow in bins of bin_s from the start on → settle_s. Pure. window: bins that are averaged.
double SettleSeconds(const std::vector<std::vector<double>>& mbps, double bin_s, int window, double wanted_mbps);

// spec.testbed.agents = false measures kernel ECMP, or the best static assignment.
absl::StatusOr<ContentionResult> RunContention(const ContentionSpec& spec);

}  // namespace cw::lab
