// SPDX-License-Identifier: Apache-2.0
//
// The packets of bench-dataplane. "Here" is 10.0.0.1, "there" 10.0.0.2.
#pragma once

#include <cstdint>
#include <string>

namespace cw::bench {

inline constexpr uint16_t kNativePort = 0xc123;

// RC SEND-middle with 1024 bytes of payload and a right ICRC.
std::string RoceFrame(bool from_here, uint32_t qpn, uint32_t psn);
// UDP to port 53: leaves the parser as late as traffic that is none of ours can.
std::string OtherFrame(bool from_here);
// A probe of slot 0 and pair 0, MAC under `key`. type: enum cw_probe_type.
std::string ProbeFrame(bool from_here, uint8_t type, uint32_t session, uint32_t round, const uint64_t key[2]);
std::string RequestFrame(uint32_t session, uint32_t round, const uint64_t key[2]);  // from there to here

void HereAndThere(uint8_t here[16], uint8_t there[16]);  // the addresses in the maps' form

}  // namespace cw::bench
