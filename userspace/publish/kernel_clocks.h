// SPDX-License-Identifier: Apache-2.0
//
// How the kernel's clocks relate to each other, from paired reads: what readers of the page need to convert timestamps.
// Units: nanoseconds. Threads: one per object; a KernelClocks may be shared.
#pragma once

#include <time.h>

#include <cstdint>
#include <functional>

namespace cw::publish {

// clock_gettime(); tests put in clocks of their own.
using ReadClock = std::function<int64_t(clockid_t)>;
int64_t ReadKernelClock(clockid_t id);

struct ClockRelations {
  int64_t mono_ns = 0;  // CLOCK_MONOTONIC; the rest holds then
  // CLOCK_BOOTTIME − CLOCK_MONOTONIC: constant while the host does not sleep.
  int64_t suspend_ns = 0;
  uint64_t suspend_error_ns = 0;
  // CLOCK_MONOTONIC_RAW, and its rate over MONOTONIC's minus 1.
  int64_t raw_ns = 0;
  double raw_slope = 0;
  uint64_t raw_error_ns = 0;
  // CLOCK_REALTIME − CLOCK_MONOTONIC lies in [low, high], since that time: slewing moves both alike, only setting the
  // clock (or a leap second) changes it.
  int64_t realtime_low_ns = 0;
  int64_t realtime_high_ns = 0;
  int64_t realtime_since_ns = 0;
};

class RelationTracker {
 public:
  explicit RelationTracker(ReadClock read = ReadKernelClock) : read_(std::move(read)) {}

  // Reads all clocks (some 50 reads, a microsecond). Call it with each publication.
  const ClockRelations& Update();
  const ClockRelations& now() const { return now_; }
  int64_t Read(clockid_t id) const { return read_(id); }

 private:
  struct Range {
    int64_t low_ns = 0, high_ns = 0;
    bool known = false;
  };
  // second − MONOTONIC from several paired reads; narrows `range`, or starts it anew and returns true when it jumped.
  bool Narrow(clockid_t second, Range& range) const;
  void UpdateRaw();

  ReadClock read_;
  ClockRelations now_;
  Range suspend_, realtime_;
  int64_t slope_mono_ns_ = 0, slope_raw_ns_ = 0;  // where the present slope is measured from
  bool started_ = false;
};

}  // namespace cw::publish
