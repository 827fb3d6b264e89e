// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace cw {

// A time that nobody sets, for deadlines and ages within one run: CLOCK_MONOTONIC, as if it had begun in 1970. No date,
// and not to be compared with one. Any thread.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace cw
