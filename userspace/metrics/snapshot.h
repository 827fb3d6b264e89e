// SPDX-License-Identifier: Apache-2.0
//
// What one reading of /metrics rests on: the replies that cwctl gets, and what is counted for metrics alone. Plain
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/api/cwfabric.pb.h"
#include "userspace/metrics/event_tally.h"
#include "userspace/metrics/hw_counters.h"
#include "userspace/metrics/link_flaps.h"
#include "userspace/metrics/path_totals.h"

namespace cw::metrics {

// Only with metrics.worst_paths: one path, the worst by queueing delay first.
struct WorstPath {
  std::string nic, peer;
  uint32_t path = 0;
  double queueing_p99_s = 0;  // forward, last 10 s
  double loss_ratio = 0;
};

// Only with metrics.top_flows: one direction of one queue pair, the fastest first.
struct TopFlow {
  std::string nic, peer, qp;
  double bytes_per_second = 0;
  double owd_p99_s = -1;  // of its own packets, last 10 s; negative: not known
};

// What the exporter itself costs.
struct SelfCost {
  uint64_t scrapes = 0;
  double server_cpu_s = 0;  // of the thread that answers, in all
  double loop_cpu_s = 0;    // of the agent's loop, for path totals, in all
};

struct Snapshot {
  v1::StatusReply status;
  v1::CountersReply counters;
  std::optional<v1::ClockReply> clock;  // nullopt: no fleet clock here
  PathTotals paths;
  EventCounts events;
  std::vector<LinkState> links;
  HwCounters rdma;
  std::vector<WorstPath> worst_paths;
  std::vector<TopFlow> top_flows;
  uint32_t communicators = 0;
  SelfCost self;
};

}  // namespace cw::metrics
