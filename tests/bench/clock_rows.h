// SPDX-License-Identifier: Apache-2.0
//
// Samples of clocks as rows of a benchmark's result, and as lines for who watches the run. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/clock_peers.h"
#include "tests/bench/clock_stamps.h"
#include "tests/bench/error_rows.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"

namespace cw::bench {

// Metrics pair_…: what each agent says about each other host's clock, all ordered pairs. Metrics without a prefix:
// fleet time of any two hosts. `suffix` is appended to every metric's name. Internal: a pair has fewer than `least`
// samples, or has no fleet time.
absl::Status AddPairs(const std::string& bench_case, const std::string& suffix, const lab::ClockSampler& sampler,
                      int hosts, size_t least, Report& report);
// reference: whom the bounds speak of.
absl::Status AddFleet(const std::string& bench_case, const std::string& suffix, const lab::FleetSampler& sampler,
                      int hosts, int reference, size_t least, Report& report);
// What the agents cost, as they say themselves.
absl::Status AddCost(const std::string& bench_case, lab::Testbed& testbed, Report& report);
absl::Status AddPeer(const std::string& bench_case, ClockPeer& peer, size_t per_second, size_t least, Report& report);
void AddStamps(const std::string& bench_case, const StampRun& run, int spines, Report& report);

}  // namespace cw::bench
