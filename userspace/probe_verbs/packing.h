// SPDX-License-Identifier: Apache-2.0
//
// Between a probe as a RoCEv2 packet of ours (maps/wire.h) and as the payload of a UD SEND. The payload is the probe's
// header and, of messages, the body and its MAC: no byte differs from what goes through the kernel. Addresses, traffic
// class and source port stand in the packet's headers on one side, and in the address handle and the GRH on the other.
// Source of the GRH's layout: InfiniBand Architecture Specification volume 1, 8.3, and annex A17.4.5.1 (RoCEv2: of an
// IPv4 packet the header is in the last 20 of the 40 bytes). Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "maps/wire.h"
#include "userspace/model/addr.h"

namespace cw::probe_verbs {

inline constexpr size_t kGrhLen = 40;
inline constexpr size_t kMaxPayload = CW_PROBE_HDR_LEN + CW_MSG_MAX + CW_MSG_MAC_LEN;
// Ethernet, the longer IP header, UDP, BTH, payload, ICRC.
inline constexpr size_t kMaxFrame = 14 + 40 + 8 + CW_BTH_LEN + kMaxPayload + CW_ICRC_LEN;

using Frame = std::array<uint8_t, kMaxFrame>;

// A packet taken apart. payload points into it.
struct Unpacked {
  Addr from, to;
  uint16_t port = 0;  // UDP source port
  uint8_t traffic_class = 0;
  uint8_t type = 0;    // enum cw_probe_type
  uint32_t label = 0;  // IPv6 flow label
  absl::Span<const uint8_t> payload;
};

// packet: from its IP header on. InvalidArgument: not one of ours.
absl::StatusOr<Unpacked> Unpack(absl::Span<const uint8_t> packet);

// How a datagram came, as its GRH tells.
struct Arrival {
  Addr from, to;
  uint8_t traffic_class = 0;  // with the ECN bits
  uint8_t hop_limit = 0;
  std::optional<int64_t> ns;  // when the device saw it, CLOCK_MONOTONIC; not of the GRH
};

// grh: 40 bytes. v4: the family of the GID that it was received on. nullopt: no header of that family.
std::optional<Arrival> ReadGrh(absl::Span<const uint8_t> grh, bool v4);

// The frame that the same probe would have been on a netdev, for the programs: port is its UDP source port. The ICRC is
// left 0, the programs look at none. nullopt: a payload that no probe has.
std::optional<absl::Span<uint8_t>> PackFrame(const Arrival& arrival, uint16_t port, absl::Span<const uint8_t> payload,
                                             Frame* frame);
// The same of a packet of ours, which has its IP header already. nullopt: too long.
std::optional<absl::Span<const uint8_t>> FrameOf(absl::Span<const uint8_t> packet, Frame* frame);
// What follows the Ethernet header of a frame.
absl::Span<const uint8_t> PacketOf(absl::Span<const uint8_t> frame);

}  // namespace cw::probe_verbs
