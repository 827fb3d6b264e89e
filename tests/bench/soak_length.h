// SPDX-License-Identifier: Apache-2.0
//
// SOAK_MINUTES. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::bench {

// minutes: the variable's value, nullptr: thirty. InvalidArgument: no number above 0, or more than a day.
absl::StatusOr<absl::Duration> SoakLength(const char* minutes);

}  // namespace cw::bench
