// SPDX-License-Identifier: Apache-2.0
//
// The clock of an RDMA device, which counts ticks, in terms of CLOCK_MONOTONIC: completions carry its ticks. Readings
// of it come in ten times a second; a count that wraps is made one that does not, ticks become nanoseconds by the
// frequency that the device tells, and sync/nic_clock.h does the rest: rate and offset, readings that were interrupted,
// steps. Units: ticks as the device gives them, nanoseconds of CLOCK_MONOTONIC. Pure; one thread per object. Source of
// mask and frequency: rdma-core, ibv_query_device_ex(3), completion_timestamp_mask and hca_core_clock (kHz).
#pragma once

#include <cstdint>
#include <optional>

#include "sync/nic_clock.h"

namespace cw::probe_verbs {

struct TickCounter {
  uint64_t mask = 0;  // of the bits that count, from the lowest on
  uint64_t khz = 0;

  // Whether it can be followed: it wraps no sooner than after a second.
  bool Usable() const { return khz > 0 && (mask & (mask + 1)) == 0 && mask / 1000 >= khz; }
};

struct TickReading {
  int64_t before_ns = 0;
  uint64_t ticks = 0;
  int64_t after_ns = 0;
};

class DeviceClock {
 public:
  static constexpr int64_t kPeriodNs = 100'000'000;     // between readings
  static constexpr int64_t kGoodForNs = 4 * kPeriodNs;  // converts nothing longer without one
  static constexpr int64_t kOldestNs = 100'000'000;     // a stamp from before that is doubted
  static constexpr int64_t kMostBoundNs = 100'000;      // a tie that is worse converts nothing
  static constexpr int64_t kMostAwayNs = 500'000'000;   // of a count, from what is expected: then it began anew

  // What became of a stamp.
  struct Stamp {
    enum class Verdict { kTaken, kNotReady, kDoubted };
    Verdict verdict = Verdict::kNotReady;
    int64_t ns = 0;  // kTaken: not after now
  };

  explicit DeviceClock(const TickCounter& counter) : counter_(counter) {}

  void Add(const TickReading& reading);
  // The stamp of a completion that was polled by now_ns.
  Stamp Convert(uint64_t ticks, int64_t now_ns) const;
  bool ready(int64_t now_ns) const { return usable_ && now_ns - last_at_ns_ <= kGoodForNs; }
  // What stamps may be off by until the next reading: likely, and at most.
  int64_t error_ns() const { return error_ns_; }
  int64_t bound_ns() const { return bound_ns_; }

 private:
  int64_t TicksIn(int64_t ns) const;
  int64_t NsIn(int64_t ticks) const;
  int64_t AwayFromExpected(uint64_t ticks, int64_t at_ns) const;

  TickCounter counter_;
  sync::NicTie tie_;
  bool begun_ = false, usable_ = false;
  uint64_t last_ticks_ = 0;  // of the newest reading …
  int64_t last_at_ns_ = 0;   // … its middle …
  int64_t passed_ = 0;       // … and ticks since the first one
  int64_t error_ns_ = 0, bound_ns_ = 0;
};

}  // namespace cw::probe_verbs
