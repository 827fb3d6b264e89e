// SPDX-License-Identifier: Apache-2.0
//
// Bytes of probes, from the IP header on (maps/wire.h has the format). The ICRC follows the InfiniBand Architecture
// Specification, volume 1, annex A17 (RoCEv2): CRC-32 over eight 0xff bytes and the packet, the fields that switches
// change set to ones. Pure; values of these types may be used on any thread, one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "maps/wire.h"
#include "userspace/model/addr.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe {

// Of cw_probe_hdr, from the IP header.
inline size_t HdrOffset(bool v4) { return IpLen(v4) + kUdpLen + CW_BTH_LEN; }
inline constexpr uint16_t kRequestIpId = 0x4357;  // any value but 0: the kernel would fill in 0 and break the ICRC

// One key of SipHash-2-4.
struct MacKey {
  __u64 k[2] = {0, 0};
};

struct PacketSpec {
  Addr local;
  Addr remote;        // of the same family
  uint16_t port = 0;  // UDP source port: the entropy under test
  uint8_t slot = 0;
  uint8_t dscp = 0;  // 0–63; ECN is always ECT(0): a queue that marks data would drop what cannot be marked
  uint8_t ttl = 64;
  uint16_t ip_id = kRequestIpId;
  uint32_t label = 0;  // IPv6: flow label
  uint32_t session = 0;
  uint16_t cookie = 0;  // our pair index
  uint8_t key_id = 0;
  MacKey key;
  uint32_t qpn = CW_BTH_QPN;      // traces may choose another: see TestQpn()
  uint16_t slots = 0;             // request: all slots that are probed in its round
  uint32_t receiver_session = 0;  // message: of the agent that it is for, as last heard; 0: not known
};

// A request or trace that can be sent again and again: a new round costs one SipHash and the CRC of the tail.
class ProbeTemplate {
 public:
  // type: CW_PROBE_REQUEST or CW_PROBE_TRACE. InvalidArgument: addresses of two families, port 0,
  // ip_id 0.
  static absl::StatusOr<ProbeTemplate> Make(cw_probe_type type, const PacketSpec& spec);

  void SetRound(uint32_t round);  // also MAC and ICRC
  absl::Span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  ProbeTemplate() = default;

  std::array<uint8_t, kIp6Len + CW_PROBE_UDP_LEN> bytes_{};
  size_t size_ = 0;
  MacKey key_;
  uint32_t prefix_crc_ = 0;  // of everything in front of the round
};

// A whole message datagram, padded to `bytes` from the IP header on where it is shorter. InvalidArgument: body longer
// than CW_MSG_MAX, bytes beyond 65535, and the errors of Make.
absl::StatusOr<std::vector<uint8_t>> BuildMessage(const PacketSpec& spec, uint32_t sequence,
                                                  absl::Span<const uint8_t> body, size_t bytes = 0);

// What a message carries besides its body.
struct MessageView {
  uint32_t session = 0;
  uint32_t receiver_session = 0;
  uint32_t sequence = 0;
  uint8_t key_id = 0;
  absl::Span<const uint8_t> body;  // into the packet given
};

// Header, body and body MAC as in cw_ev_msg.packet. Checks lengths, magic, version and type, not the MACs.
absl::StatusOr<MessageView> ParseMessage(absl::Span<const uint8_t> packet);
// Both MACs of a packet that ParseMessage accepted. Unauthenticated when one is wrong.
absl::Status VerifyMessage(absl::Span<const uint8_t> packet, const MacKey& key);

// ICRC of a packet from its IP header (no options or extensions) to the byte before the ICRC, as the number that is
// stored with its lowest byte first. packet must hold the headers up to the BTH.
uint32_t ComputeIcrc(absl::Span<const uint8_t> packet);

}  // namespace cw::probe
