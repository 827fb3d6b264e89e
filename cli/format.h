// SPDX-License-Identifier: Apache-2.0
//
// Values as people read them, each with its unit.
#pragma once

#include <cstdint>
#include <string>

#include "cli/table.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

extern const char kNoValue[];  // "–": not measured

// A delay between two clocks. Below the clock's error (at least 10 ns) it is "< 0.40 µs": never zero, never negative.
std::string DelayText(double delay_ns, double error_ns);
// A difference or a jitter: not below a clock's error.
std::string NsText(double ns);
std::string DurationText(double seconds);                      // "85 ms", "3.2 s", "12 min", "4.5 h", "3 d"
std::string AgoText(double seconds);                           // as above; kNoValue when negative
std::string RateText(double bits_per_second);                  // "1.25 Gbit/s"
std::string BytesText(double bytes);                           // "3.4 MiB"
std::string CountText(uint64_t count);                         // "12,345"
std::string ShareText(double share);                           // "0 %", "0.02 %", "< 0.01 %"
std::string QpnText(uint32_t qpn);                             // "0x1a2b", kNoValue when 0
std::string SlotText(int slot);                                // kNoValue when negative
std::string AllowText(cwfabric::v1::Allow allow);              // "act"
std::string ModeText(cwfabric::v1::Mode mode);                 // "observe"
Cell StateCell(cwfabric::v1::PathState state);                 // "up", coloured
std::string LockText(cwfabric::v1::Lock lock);                 // "", "soft", "hard"
std::string HashingText(cwfabric::v1::FabricHashing hashing);  // "hashed on ports"
// Where no switch answers, ports are probed as if each took a path of its own; "" where one answers.
std::string UnseenPathsText(const cwfabric::v1::Pair& pair);
std::string UtcText(int64_t unix_ns);  // "2024-05-01T12:00:00.123456Z"

}  // namespace cw::cli
