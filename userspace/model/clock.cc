// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/clock.h"

#include <ctime>

namespace cw {

namespace {

int64_t ReadNs(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace

int64_t MonotonicClock::NowNs() const { return ReadNs(CLOCK_MONOTONIC); }

int64_t ThreadCpuNs() { return ReadNs(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace cw
