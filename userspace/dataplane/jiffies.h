// SPDX-License-Identifier: Apache-2.0
//
// The kernel's 64-bit jiffies: the time in which the maps keep leases and ages (it costs a packet nothing to read).
// Thread rule: Create once; the conversions from any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace cw::dataplane {

class Jiffies {
 public:
  // Reads the kernel's count and learns its rate, which takes about 50 ms.
  static absl::StatusOr<Jiffies> Create();

  int hz() const { return hz_; }
  // CLOCK_MONOTONIC ns → jiffies and back; right within a tick.
  uint64_t AtNs(int64_t monotonic_ns) const;
  int64_t ToNs(uint64_t jiffies) const;

 private:
  Jiffies(int hz, uint64_t jiffies, int64_t ns) : hz_(hz), jiffies_(jiffies), ns_(ns) {}
  int hz_;
  uint64_t jiffies_;
  int64_t ns_;
};

}  // namespace cw::dataplane
