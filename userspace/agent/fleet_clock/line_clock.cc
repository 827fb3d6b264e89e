// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/line_clock.h"

#include <time.h>

#include <optional>

namespace cw::agent {
namespace {

constexpr int kLineReads = 3;           // the tightest read counts
constexpr int64_t kLateLineNs = 1'000;  // a line that takes hold so late is begun anew …
constexpr int kLateTries = 8;           // … unless the machine is so busy that it always does

}  // namespace

int64_t LineClock::AtNs(int64_t monotonic_ns) const {
  cw_local_line line;
  cw_local_get(record_, &line);
  const auto at = static_cast<uint64_t>(monotonic_ns);
  return under_->AtNs(monotonic_ns) + static_cast<int64_t>(cw_local_at(&line, at) - at);
}

void LineClock::Look() {
  const std::optional<sync::PairedRead> read = sync::ReadPaired(CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, kLineReads);
  if (!read) return;
  cw_local_line held;
  cw_local_get(record_, &held);
  const std::optional<cw_local_line> next = keeper_.Look(*read, held);
  const bool gave_up = keeper_.given_up() != given_up();
  if (next) PutLine(record_, held, *next);
  bound_ns_.store(keeper_.BoundNs(read->a_after_ns), std::memory_order_relaxed);
  missing_ns_.store(keeper_.missing_ns(), std::memory_order_relaxed);
  slew_ppb_.store(keeper_.slew_ppb(), std::memory_order_relaxed);
  changes_.store(keeper_.changes(), std::memory_order_relaxed);
  last_given_up_ns_.store(keeper_.last_given_up_ns(), std::memory_order_relaxed);
  given_up_.store(keeper_.given_up(), std::memory_order_relaxed);
  if ((next || gave_up) && on_change_) on_change_();
}

// Readers change from the one line to the other when the generation does: that has to be at the new one's pivot, or
// local time would step by the difference of the rates for as long as we were interrupted in between.
void PutLine(cw_local_clock* record, const cw_local_line& held, const cw_local_line& line) {
  const MonotonicClock monotonic;
  const uint64_t generation = __atomic_load_n(&record->generation, __ATOMIC_RELAXED) + 1;
  cw_local_line& copy = record->copy[generation & 1];
  for (int i = 0; i < kLateTries; ++i) {
    const int64_t at_ns = monotonic.NowNs();
    const cw_local_line next = sync::Continue(held, line, at_ns);
    __atomic_store_n(&copy.pivot_ns, next.pivot_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&copy.ahead_ns, next.ahead_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&copy.rate_q32, next.rate_q32, __ATOMIC_RELEASE);
    __atomic_store_n(&copy.work_q32, next.work_q32, __ATOMIC_RELEASE);
    __atomic_store_n(&copy.work_ns, next.work_ns, __ATOMIC_RELEASE);
    if (monotonic.NowNs() - at_ns < kLateLineNs) break;
  }
  __atomic_store_n(&record->generation, generation, __ATOMIC_RELEASE);
}

}  // namespace cw::agent
