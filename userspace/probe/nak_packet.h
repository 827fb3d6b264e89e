// SPDX-License-Identifier: Apache-2.0
//
// The acknowledgement packet that asks a requester for a resend: RC ACKNOWLEDGE with AETH syndrome 0x60, NAK for a PSN
// sequence error. Source: InfiniBand Architecture Specification vol. 1 release 1.4, 9.5 (AETH), annex A17 (RoCEv2).
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"
#include "userspace/probe/packet.h"

namespace cw::probe {

inline constexpr size_t kAethLen = 4;
inline constexpr size_t kNakUdpLen = kUdpLen + CW_BTH_LEN + kAethLen + CW_ICRC_LEN;

struct NakSpec {
  Addr from;         // of the responder, in whose name it speaks
  Addr to;           // of the requester, of the same family
  uint32_t qpn = 0;  // of the requester, 24 bits, not 0
  uint32_t psn = 0;  // first PSN to send again, 24 bits
};

// From the IP header to the ICRC. InvalidArgument: addresses of two families, QPN 0, numbers of more than 24 bits.
absl::StatusOr<std::vector<uint8_t>> BuildSequenceNak(const NakSpec& spec);

}  // namespace cw::probe
