// SPDX-License-Identifier: Apache-2.0
//
// How soon fleet time is good: after the start of all agents, and after one host's clock was set by a second. "Good" is
// within three times the steady error, for the rest of the phase. Rows, case `bench_case`:
//   start_to_3x_steady s      from the last agent's start, all pairs of hosts
//   step_to_3x_steady s       from the step, pairs with the host whose clock was set
//   step_others_abs_error ns  pairs of the other hosts, in the 5 s from the step on
//   recovery_steady ns        the steady error, pairs of all hosts
// Threads: one, besides the sampler's own.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/testbed.h"

namespace cw::bench {

// spec: hosts with hidden clocks; the last host's clock is set. Takes 50 s.
absl::Status MeasureRecovery(lab::TestbedSpec spec, const std::string& bench_case, Report& report);

}  // namespace cw::bench
