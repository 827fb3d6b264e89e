// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/order_clock.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "userspace/model/kernel_time.h"
#include "userspace/model/steady.h"

namespace cw::fleet {
namespace {

bool KernelSaysSynchronised() { return KernelTimeBoundNs().has_value(); }

}  // namespace

OrderClock::Reads OrderClock::OfSystem() {
  return {.wall_ns = absl::GetCurrentTimeNanos, .steady = SteadyNow, .synchronised = KernelSaysSynchronised};
}

OrderClock::OrderClock(int64_t newest_ns, Reads reads)
    : reads_(std::move(reads)),
      now_ns_(newest_ns > 0 ? std::min(newest_ns, reads_.wall_ns()) : reads_.wall_ns()),
      at_(reads_.steady()) {}

int64_t OrderClock::NowNs() {
  const std::lock_guard lock(mutex_);
  const absl::Time at = reads_.steady();
  now_ns_ += absl::ToInt64Nanoseconds(at - at_);
  at_ = at;
  if (reads_.synchronised()) now_ns_ = reads_.wall_ns();
  return now_ns_;
}

int64_t OrderClock::WallOf(int64_t ns) { return ns == 0 ? 0 : ns + reads_.wall_ns() - NowNs(); }

}  // namespace cw::fleet
