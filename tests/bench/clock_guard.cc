// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_guard.h"

#include <sys/timex.h>
#include <time.h>

#include <cstdlib>

#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

int64_t NowNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The reading between two others that stand closest together.
int64_t RealtimeMinusMonotonicNs() {
  int64_t best_ns = INT64_MAX, difference_ns = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t before_ns = NowNs(CLOCK_MONOTONIC);
    const int64_t realtime_ns = NowNs(CLOCK_REALTIME);
    const int64_t after_ns = NowNs(CLOCK_MONOTONIC);
    if (after_ns - before_ns >= best_ns) continue;
    best_ns = after_ns - before_ns;
    difference_ns = realtime_ns - (before_ns + best_ns / 2);
  }
  return difference_ns;
}

}  // namespace

KernelClock KernelClock::Read() {
  timex t{};  // modes = 0: nothing is set
  (void)adjtimex(&t);
  return {.frequency = t.freq,
          .tick_us = t.tick,
          .offset = t.offset,
          .status = t.status,
          .tai_s = t.tai,
          .realtime_minus_monotonic_ns = RealtimeMinusMonotonicNs()};
}

absl::Status Untouched(const KernelClock& before, const KernelClock& after) {
  constexpr int64_t kReadingErrorNs = 2000;
  const int64_t stepped_ns = after.realtime_minus_monotonic_ns - before.realtime_minus_monotonic_ns;
  if (before.frequency == after.frequency && before.tick_us == after.tick_us && before.offset == after.offset &&
      before.status == after.status && before.tai_s == after.tai_s && std::llabs(stepped_ns) <= kReadingErrorNs) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "this machine's clock was steered during the run: frequency %d -> %d, tick %d -> %d, offset %d "
      "-> %d, status 0x%x -> 0x%x, TAI %d -> %d, step %d ns; "
      "the results are void. Stop this machine's own time service (chrony, systemd-timesyncd) for the run",
      before.frequency, after.frequency, before.tick_us, after.tick_us, before.offset, after.offset, before.status,
      after.status, before.tai_s, after.tai_s, stepped_ns));
}

}  // namespace cw::bench
