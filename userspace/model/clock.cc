// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/clock.h"

#include <ctime>

namespace cw {

int64_t MonotonicClock::NowNs() const {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace cw
