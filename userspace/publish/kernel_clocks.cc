// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/kernel_clocks.h"

#include <algorithm>

namespace cw::publish {
namespace {
constexpr int kReads = 8;
constexpr int64_t kRoundingNs = 2;  // of each difference, as the vDSO computes it
constexpr int64_t kSlopeSpanNs = 1'000'000'000;
}  // namespace

int64_t ReadKernelClock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

bool RelationTracker::Narrow(clockid_t second, Range& range) const {
  Range seen;
  for (int i = 0; i < kReads; ++i) {
    const int64_t before_ns = read_(CLOCK_MONOTONIC);
    const int64_t second_ns = read_(second);
    const int64_t after_ns = read_(CLOCK_MONOTONIC);
    const int64_t low_ns = second_ns - after_ns - kRoundingNs;
    const int64_t high_ns = second_ns - before_ns + kRoundingNs;
    if (seen.known && (low_ns > seen.high_ns || high_ns < seen.low_ns)) seen.known = false;  // jumped just now
    seen = seen.known ? Range{std::max(low_ns, seen.low_ns), std::min(high_ns, seen.high_ns), true}
                      : Range{low_ns, high_ns, true};
  }
  const bool jumped = range.known && (seen.low_ns > range.high_ns || seen.high_ns < range.low_ns);
  range = range.known && !jumped
              ? Range{std::max(seen.low_ns, range.low_ns), std::min(seen.high_ns, range.high_ns), true}
              : seen;
  return jumped;
}

void RelationTracker::UpdateRaw() {
  int64_t width_ns = INT64_MAX;
  for (int i = 0; i < kReads; ++i) {
    const int64_t before_ns = read_(CLOCK_MONOTONIC);
    const int64_t raw_ns = read_(CLOCK_MONOTONIC_RAW);
    const int64_t after_ns = read_(CLOCK_MONOTONIC);
    if (after_ns - before_ns >= width_ns) continue;
    width_ns = after_ns - before_ns;
    now_.mono_ns = before_ns + width_ns / 2;
    now_.raw_ns = raw_ns;
  }
  now_.raw_error_ns = static_cast<uint64_t>(width_ns / 2 + 1);
  if (slope_mono_ns_ == 0) {
    slope_mono_ns_ = now_.mono_ns;
    slope_raw_ns_ = now_.raw_ns;
  } else if (const int64_t span_ns = now_.mono_ns - slope_mono_ns_; span_ns >= kSlopeSpanNs) {
    now_.raw_slope = static_cast<double>(now_.raw_ns - slope_raw_ns_ - span_ns) / static_cast<double>(span_ns);
    slope_mono_ns_ = now_.mono_ns;
    slope_raw_ns_ = now_.raw_ns;
  }
}

const ClockRelations& RelationTracker::Update() {
  UpdateRaw();
  Narrow(CLOCK_BOOTTIME, suspend_);
  if (suspend_.low_ns <= 0 && suspend_.high_ns >= 0) suspend_ = {0, 0, true};  // no sleep is that short: never slept
  now_.suspend_ns = suspend_.low_ns + (suspend_.high_ns - suspend_.low_ns) / 2;
  now_.suspend_error_ns = static_cast<uint64_t>(suspend_.high_ns - suspend_.low_ns + 1) / 2;
  const bool set = Narrow(CLOCK_REALTIME, realtime_);
  if (set || !started_) now_.realtime_since_ns = set ? now_.mono_ns : INT64_MIN;
  now_.realtime_low_ns = realtime_.low_ns;
  now_.realtime_high_ns = realtime_.high_ns;
  started_ = true;
  return now_;
}

}  // namespace cw::publish
