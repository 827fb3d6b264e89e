// SPDX-License-Identifier: Apache-2.0
// RoCEv2 packets of the lab's emulator: fields, encoding, parsing, ICRC, 24-bit PSN arithmetic.
//
// Packets start at the IP header. Addresses, QPNs and PSNs are in host order. Over IPv6, addresses are
// the lab's: fd00::a.b.c.d, known by their last four bytes. Written apart from bpf/'s parser and ICRC on purpose: each
// is the other's check. Sources: IBTA 1.7 §9 (transport), §A17 (RoCEv2). Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cw::lab {

inline constexpr uint16_t kRoceUdpPort = 4791;
inline constexpr uint32_t kPsnMask = 0xffffff;
inline constexpr uint32_t kQpnMask = 0xffffff;
inline constexpr size_t kMaxRoceHeader = 40 + 8 + 12 + 16 + 4;  // IPv6, UDP, BTH, RETH, immediate
inline constexpr size_t kIcrcBytes = 4;

enum RoceOpcode : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendOnly = 0x04,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kCnp = 0x81,
};

inline constexpr uint8_t kSyndromeAck = 0x1f;  // ACK without credit limit
inline constexpr uint8_t kSyndromeNakSequence = 0x60;
inline constexpr uint8_t kSyndromeNakInvalid = 0x61;

inline constexpr uint8_t kEcnMask = 0x03;
inline constexpr uint8_t kEcnCe = 0x03;

inline constexpr uint32_t PsnAdd(uint32_t psn, uint64_t n) { return static_cast<uint32_t>((psn + n) & kPsnMask); }

// Signed distance a − b in serial arithmetic, in [−2^23, 2^23).
inline constexpr int32_t PsnDiff(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) >> 8; }

struct RocePacket {
  uint32_t source = 0;
  uint32_t destination = 0;
  uint16_t source_port = 0;
  bool ip6 = false;
  uint16_t ip_id = 0;  // IPv4
  uint32_t label = 0;  // IPv6: flow label; RDMA stacks leave 0 where nobody asks for another
  uint8_t tos = 0;
  uint8_t ttl = 64;
  uint8_t opcode = 0;
  bool ack_req = false;
  bool becn = false;
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  // Extended headers: which of them are on the wire follows from the opcode.
  uint64_t reth_va = 0;
  uint32_t reth_rkey = 0;
  uint32_t reth_length = 0;
  uint8_t aeth_syndrome = 0;
  uint32_t aeth_msn = 0;
  uint32_t immediate = 0;
  uint32_t payload_bytes = 0;  // without padding

  uint8_t PadBytes() const { return static_cast<uint8_t>(-payload_bytes & 3); }
};

// fd00:: and the IPv4 address: what stands for it in a lab of IPv6.
inline constexpr uint8_t kLabPrefix6[12] = {0xfd};

bool HasReth(uint8_t opcode);
bool HasAeth(uint8_t opcode);
bool HasImmediate(uint8_t opcode);
bool IsRequest(uint8_t opcode);  // travels in the requester's PSN space and asks for an ACK
bool IsReadResponse(uint8_t opcode);
bool EndsMessage(uint8_t opcode);    // Last or Only of a SEND, WRITE or READ response
bool StartsMessage(uint8_t opcode);  // First or Only of a SEND, WRITE or READ response

// Writes IP, UDP, BTH and extended headers to `out` (at least kMaxRoceHeader bytes) and returns their length. The UDP
// checksum is 0, DF is set, and a CNP's 16 reserved bytes are payload. The IP checksum is right.
size_t EncodeHeaders(const RocePacket& packet, uint8_t* out);

// The RoCEv2 packet that starts at the IP header, or nothing when it is another protocol, a fragment, truncated, has
// an opcode not listed above, or lengths that contradict each other. Trailing bytes after the IP length are ignored.
// `ip_bytes` receives the packet's length on the wire, ICRC included.
std::optional<RocePacket> ParsePacket(std::span<const uint8_t> ip, size_t* ip_bytes);

// Raw CRC state after the dummy LRH and the packet's headers, whose masked fields count as ones. `headers` starts at
// the IP header (v4 or v6), has at least the BTH, and may go on into the payload.
uint32_t IcrcState(std::span<const uint8_t> headers);

// The ICRC of a packet from its IP header through its padding; on the wire it is stored low byte first.
uint32_t Icrc(std::span<const uint8_t> ip_to_padding);

// True when the packet's last four bytes are its ICRC.
bool IcrcIsRight(std::span<const uint8_t> ip_to_icrc);

// The ICRC after some unmasked bytes changed: `delta` is old XOR new, and `bytes_after` counts the bytes between the
// last changed byte and the ICRC.
uint32_t IcrcPatch(uint32_t icrc, std::span<const uint8_t> delta, size_t bytes_after);

// The UDP source port that a driver derives for an RC queue pair without a flow label; the same in both directions.
uint16_t UdpSourcePort(uint32_t local_qpn, uint32_t remote_qpn);

}  // namespace cw::lab
