// SPDX-License-Identifier: Apache-2.0
//
// Paired reads of two real clocks, for ClockDomain. Any thread; no system call where the C library reads the clocks
// from shared memory (MONOTONIC and MONOTONIC_RAW on Linux).
#pragma once

#include <time.h>

#include <cstdint>
#include <optional>

namespace cw::sync {

struct PairedRead {
  int64_t a_before_ns = 0;
  int64_t b_ns = 0;
  int64_t a_after_ns = 0;
};

// The tightest of `tries` reads of a, b, a. Nothing: the system has no such clock.
std::optional<PairedRead> ReadPaired(clockid_t a, clockid_t b, int tries = 3);

}  // namespace cw::sync
