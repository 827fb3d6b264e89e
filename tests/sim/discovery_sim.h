// SPDX-License-Identifier: Apache-2.0
//
// How long path discovery takes with many peers, and what it costs: the production probe::PathMonitor of one host in a
// two-tier fabric whose switches choose the spine by a hash of the addresses and the port. Answers come after a round
// trip, or are lost. One thread; the same seed gives the same result.
//
// Left out: other hosts' traces at the same switches, and switches that answer fewer than they are asked.
#pragma once

#include <cstdint>

#include "userspace/probe/path_monitor.h"

namespace cw::sim {

struct DiscoverySpec {
  int peers = 1000;
  int job_peers = 0;  // that data go to from the beginning on
  int hosts_per_leaf = 32;
  int spines = 8;
  double lost = 0;  // share of answers
  double round_trip_s = 200e-6;
  double deadline_s = 14400;
  double then_s = 60;  // with all tables there: what keeping them costs
  probe::PathMonitorOptions monitor{};
  uint64_t seed = 1;
};

struct DiscoveryResult {
  double first_s = 0, half_s = 0, p99_s = 0, all_s = 0;  // until so many pairs have a table; −1: not by the deadline
  double job_s = 0;                                      // until all pairs that data go to have one
  double traces_per_pair = 0;                            // packets, until then
  double most_per_switch_s = 0;  // trace packets that the switch asked most got in the busiest second
  int missed = 0;                // paths that no table holds, though it had room
  double verified_age_s = 0;     // at the end: median over pairs of the oldest path's age since it was last traced
  double build_cpu_s = 0;        // of a processor, in all
  double kept_cpu_share = 0;     // of a processor, from then on
  double mib = 0;                // what pairs hold
};

DiscoveryResult SimulateDiscovery(const DiscoverySpec& spec);

}  // namespace cw::sim
