// SPDX-License-Identifier: Apache-2.0
//
// A run with hidden clocks, as tables and charts of the lab's report: each host's fleet time against the reference
// host's at the same true instant, with what the host itself says of its error.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/report.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

struct ClockSpec {
  TestbedSpec testbed;  // with hidden clocks
  double load = 0;      // RoCE traffic, of each direction of each leaf–spine link
  absl::Duration length = absl::Seconds(30);
  uint64_t seed = 1;
};

struct ClockResult {
  std::vector<FleetPair> samples;  // of each host against the reference, since all hosts named it
  int reference = 0;
  uint64_t refused = 0, readings = 0;
  std::vector<double> load;  // share of its rate, of each direction of each leaf–spine link
  Table table;
  Phase phase;  // two charts per host, a mark at each change of a drift
};

absl::StatusOr<ClockResult> RunClock(const ClockSpec& spec);

// Pure. Samples against the reference; times of the charts count from origin_ns. A chart keeps at most `points` of each
// host's samples: of each stretch of time the one with the largest error, because that is what one looks for.
std::vector<Chart> ClockCharts(const std::vector<FleetPair>& samples, int reference, int64_t origin_ns, size_t points);
Table ClockTable(const std::vector<FleetPair>& samples, int reference);

}  // namespace cw::lab
