// SPDX-License-Identifier: Apache-2.0
//
// This machine's own clock must not be touched by anything that a benchmark starts. Threads: any.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace cw::bench {

// Of CLOCK_REALTIME: adjtimex(2), read only, and its distance from CLOCK_MONOTONIC.
struct KernelClock {
  int64_t frequency = 0;  // 2^-16 ppm
  int64_t tick_us = 0;
  int64_t offset = 0;
  int status = 0;  // STA_* bits
  int tai_s = 0;
  int64_t realtime_minus_monotonic_ns = 0;

  static KernelClock Read();
};

// FailedPrecondition: somebody steered or stepped the clock in between.
absl::Status Untouched(const KernelClock& before, const KernelClock& after);

}  // namespace cw::bench
