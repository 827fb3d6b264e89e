// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_anchor.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

constexpr int kAnchorReads = 5;         // the tightest read counts: one may be interrupted
constexpr int64_t kWidestNs = 100'000;  // a read that took longer says little
constexpr int64_t kWorstBoundNs = 1'000'000'000;

}  // namespace

KernelTime KernelTime::Real() {
  return {.adjtimex = [](timex* t) { return ::adjtimex(t); },
          .tai_ns =
              [] {
                timespec ts{};
                clock_gettime(CLOCK_TAI, &ts);
                return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
              }};
}

RealtimeAnchor::RealtimeAnchor(std::shared_ptr<const Clock> local, absl::Duration least_bound, KernelTime kernel)
    : local_(std::move(local)), least_bound_ns_(absl::ToInt64Nanoseconds(least_bound)), kernel_(std::move(kernel)) {}

sync::AnchorReading RealtimeAnchor::Read() {
  sync::AnchorReading reading;
  timex state{};
  const int kind = kernel_.adjtimex(&state);
  const int64_t max_error_ns = int64_t{state.maxerror} * 1000;
  if (kind < 0) {
    note_ = absl::StrCat("adjtimex: ", strerror(errno));
  } else if (kind == TIME_ERROR || (state.status & STA_UNSYNC) != 0) {
    note_ = "nothing disciplines the kernel's clock; start chronyd or phc2sys";
  } else if (state.tai == 0) {
    note_ = "the kernel does not know TAI − UTC; give chronyd \"leapsectz right/UTC\", or ptp4l the UTC offset";
  } else if (max_error_ns >= kWorstBoundNs) {
    note_ = absl::StrCat("the kernel's clock may be off by ", state.maxerror / 1000, " ms");
  } else {
    note_.clear();
  }
  if (!note_.empty()) return reading;
  int64_t width_ns = INT64_MAX;
  for (int i = 0; i < kAnchorReads; ++i) {
    const int64_t before_ns = local_->NowNs();
    const int64_t tai_ns = kernel_.tai_ns();
    const int64_t after_ns = local_->NowNs();
    if (after_ns < before_ns || after_ns - before_ns >= width_ns) continue;
    width_ns = after_ns - before_ns;
    reading.local_ns = before_ns + width_ns / 2;
    reading.tai_ns = tai_ns;
  }
  if (width_ns > kWidestNs) {
    note_ = "the clocks could not be read close together: the machine is overloaded";
    return {};
  }
  reading.has = true;
  reading.bound_ns = std::max(max_error_ns, least_bound_ns_) + width_ns / 2 + 1;
  return reading;
}

}  // namespace cw::agent
