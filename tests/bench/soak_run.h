// SPDX-License-Identifier: Apache-2.0
//
// What soaks have in common: SOAK_MINUTES, and a result that is written and printed.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/bench_result.h"

namespace cw::bench {

// minutes: the variable's value, nullptr: thirty. InvalidArgument: no number above 0, or more than a day. Pure.
absl::StatusOr<absl::Duration> SoakLength(const char* minutes);

// The agents' liveness.patience, of BENCH_PATIENCE_MS; `by_default` where that is no number of milliseconds.
absl::Duration SoakPatience(absl::Duration by_default);

// Runs `measure` for SOAK_MINUTES; the exit status of main: 0 ok, 1 failed, 2 usage. name: the report's, and the file's
// below build/bench where --out names no other.
int RunSoak(int argc, char** argv, const std::string& name,
            const std::function<absl::Status(absl::Duration length, Report& report)>& measure);

}  // namespace cw::bench
