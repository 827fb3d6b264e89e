// SPDX-License-Identifier: Apache-2.0
// What cw_vm_clock in a virtual machine writes and a benchmark on the host reads: readings of the machine's clocks,
// each beside its time stamp counter.
#pragma once

#include <cstdint>
#include <type_traits>

namespace cw::vm {

// A clock read between two readings of the counter; the true moment is within gap / 2 of tsc.
struct PairedReading {
  int64_t tsc = 0;  // the middle
  int64_t gap = 0;  // ticks between the two
  int64_t ns = 0;
};

struct ClockRecord {
  PairedReading monotonic, realtime;
  int32_t error = 0;  // of libcwclock: 0, or why fleet time was refused; then nothing below holds
  uint32_t epoch = 0;
  uint64_t timeline = 0;
  int64_t fleet_ns = 0;  // at monotonic.ns; so are the others
  int64_t bound_ns = 0;
  int64_t error_est_ns = 0;
};
static_assert(std::is_trivially_copyable_v<ClockRecord> && sizeof(ClockRecord) == 88);

}  // namespace cw::vm
