// SPDX-License-Identifier: Apache-2.0
//
// The acknowledgement packet that asks a requester for a resend: RC ACKNOWLEDGE with AETH syndrome 0x60, NAK for a PSN
// sequence error. Source: InfiniBand Architecture Specification vol. 1 release 1.4, 9.5 (AETH), annex A17 (RoCEv2).
// Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"
#include "userspace/probe/packet.h"

namespace cw::probe {

inline constexpr size_t kAethLen = 4;
inline constexpr size_t kNakPacketLen = kIpLen + kUdpLen + CW_BTH_LEN + kAethLen + CW_ICRC_LEN;

struct NakSpec {
  Addr from;         // IPv4 of the responder, in whose name it speaks
  Addr to;           // IPv4 of the requester
  uint32_t qpn = 0;  // of the requester, 24 bits, not 0
  uint32_t psn = 0;  // first PSN to send again, 24 bits
};

// From the IPv4 header to the ICRC. Unimplemented: an address is not IPv4. InvalidArgument: QPN 0, numbers of more than
// 24 bits.
absl::StatusOr<std::array<uint8_t, kNakPacketLen>> BuildSequenceNak(const NakSpec& spec);

}  // namespace cw::probe
