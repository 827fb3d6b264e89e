// SPDX-License-Identifier: Apache-2.0
//
// The host's local clock: CLOCK_MONOTONIC without what an NTP client does to its rate. The line that makes the
// difference (maps/local_clock.h) is in the map that the BPF programs read; this clock reads the same record, and keeps
// it. A new agent goes on with the line that it finds.
//
// Thread rule: the clock and what is told of it from any thread; Look from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "maps/local_clock.h"
#include "sync/line_keeper.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class LineClock final : public Clock {
 public:
  // The record must outlive the clock. under: what the line is added to, as a function of CLOCK_MONOTONIC.
  LineClock(std::shared_ptr<const Clock> under, cw_local_clock* record) : under_(std::move(under)), record_(record) {}

  int64_t NowNs() const override { return AtNs(monotonic_.NowNs()); }
  int64_t AtNs(int64_t monotonic_ns) const override;

  // Has CLOCK_MONOTONIC been slewed? Half a microsecond, and no system call. As often as can be: what is not
  // noticed yet is an error of local time. Calls on_change after the line has changed.
  void Look();
  void set_on_change(std::function<void()> on_change) { on_change_ = std::move(on_change); }

  // As of the last look.
  int64_t bound_ns() const { return bound_ns_.load(std::memory_order_relaxed); }  // see LineKeeper
  int64_t missing_ns() const { return missing_ns_.load(std::memory_order_relaxed); }
  double slew_ppb() const { return slew_ppb_.load(std::memory_order_relaxed); }  // by which RAW outruns MONOTONIC
  uint32_t changes() const { return changes_.load(std::memory_order_relaxed); }
  uint32_t given_up() const { return given_up_.load(std::memory_order_relaxed); }
  int64_t last_given_up_ns() const { return last_given_up_ns_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<const Clock> under_;
  cw_local_clock* const record_;
  const MonotonicClock monotonic_;
  std::function<void()> on_change_;
  sync::LineKeeper keeper_;
  std::atomic<int64_t> bound_ns_{0}, missing_ns_{0}, last_given_up_ns_{0};
  std::atomic<double> slew_ppb_{0};
  std::atomic<uint32_t> changes_{0}, given_up_{0};
};

// Makes `line` the one that holds from now on, where local time has come to on `held`, which held so far. One writer.
void PutLine(cw_local_clock* record, const cw_local_line& held, const cw_local_line& line);

}  // namespace cw::agent
