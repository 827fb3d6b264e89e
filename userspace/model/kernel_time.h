// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of its wall clock. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace cw {

// How far from UTC it is at most (adjtimex(2), maxerror), ns; nullopt: nobody keeps it right. That goes whenever
// somebody sets the clock, and comes back with NTP or PTP.
std::optional<uint64_t> KernelTimeBoundNs();

}  // namespace cw
