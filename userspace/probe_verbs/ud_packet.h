// SPDX-License-Identifier: Apache-2.0
//
// A UD SEND as the bytes of its packet, from the IP header to the ICRC, for a NIC whose end of a pair has no queue
// pair. Source: InfiniBand Architecture Specification volume 1, 9.2 (BTH), 9.3.3.1 (DETH), 9.4.1 (pad), annex A17
// (RoCEv2). Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "userspace/model/addr.h"
#include "userspace/probe_verbs/packing.h"

namespace cw::probe_verbs {

// The longer IP header, UDP, BTH, DETH, payload with its pad, ICRC.
inline constexpr size_t kMaxUdPacket = 40 + 8 + CW_BTH_LEN + CW_DETH_LEN + kMaxPayload + 3 + CW_ICRC_LEN;
using UdPacket = std::array<uint8_t, kMaxUdPacket>;

struct UdSend {
  Addr from, to;      // of one family
  uint16_t port = 0;  // UDP source port
  uint8_t traffic_class = 0;
  uint32_t label = 0;     // IPv6 flow label
  uint32_t qpn = 0;       // of the receiver
  uint32_t from_qpn = 0;  // of the sender
  absl::Span<const uint8_t> payload;
};

// With the Q_Key of probes and a valid ICRC, into *out. Empty: a payload that no probe has, or two families.
absl::Span<const uint8_t> BuildUdSend(const UdSend& send, UdPacket* out);
// nullopt: not a UD SEND with the Q_Key of probes, or lengths that contradict each other. What follows the packet is
// not looked at, nor is the ICRC. The payload points into the packet.
std::optional<UdSend> ParseUdSend(absl::Span<const uint8_t> packet);

}  // namespace cw::probe_verbs
