// SPDX-License-Identifier: Apache-2.0
// The lab's time of day: CLOCK_MONOTONIC, which faults, flows and switch programs share. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace cw::lab {

inline int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace cw::lab
