// SPDX-License-Identifier: Apache-2.0
// RoCEv2 frames for the tests of the dataplane: built from the fields, with an ICRC from zlib's CRC as the computation
// that is independent of bpf/icrc.h. Addresses, ports and numbers in host order, bytes as on the wire. Any thread.
#ifndef CW_TESTS_BPF_FRAME_H
#define CW_TESTS_BPF_FRAME_H

// The suites of the dataplane are compiled twice, once for each family.
#ifndef CW_TEST_IP6
#define CW_TEST_IP6 0
#endif

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::test {

using Bytes = std::vector<uint8_t>;

inline constexpr bool kIp6 = CW_TEST_IP6;
inline constexpr size_t kIpLen = kIp6 ? 40 : 20;  // of the suite's family

struct Frame {
  bool ip6 = kIp6;
  int vlan_tags = 0;
  uint16_t ethertype = 0;    // 0: of the family
  uint32_t label = 0x54321;  // IPv6: flow label
  Bytes ip6_extension;       // IPv6: headers between, whose first is of this kind …
  uint8_t ip6_next = 60;     // … where there are any
  uint8_t version_ihl = 0x45;
  Bytes ip_options;
  uint8_t tos = 0x02;
  uint16_t ip_id = 0x1234;
  uint16_t frag = 0x4000;  // flags and offset: don't fragment
  uint8_t ttl = 63;
  uint8_t protocol = 17;
  uint32_t saddr = 0x0a000001;  // IPv6: fd00::a00:1
  uint32_t daddr = 0x0a000002;
  uint16_t sport = 49152;
  uint16_t dport = 4791;
  int udp_len_delta = 0;      // error to put into the UDP length
  int ip_len_delta = 0;       // error to put into the IP length
  bool udp_checksum = false;  // 0 on the wire if false
  uint8_t opcode = 0x0a;      // RDMA WRITE only
  uint8_t bth_flags = 0x40;
  uint32_t dqpn = 0x11;
  bool ack_req = false;
  uint32_t psn = 0;
  Bytes ext;                     // extended headers; empty = zeros of the opcode's length
  Bytes payload = Bytes(64, 7);  // pad included
};

// Length of an opcode's extended headers, from the tables of the InfiniBand specification.
size_t ExtLength(uint8_t opcode);

Bytes Build(const Frame& frame);

// Offsets of the IP header in a frame, and of the UDP header behind one without options or extensions.
size_t IpOffset(const Bytes& frame);
size_t UdpOffset(const Bytes& frame);

// The 16 bytes that stand for an address of Frame: fd00::a.b.c.d, or ::ffff:a.b.c.d.
Bytes AddressBytes(uint32_t address, bool ip6);

// The ICRC that a RoCEv2 frame without IP options or extensions must carry, computed over all of it.
uint32_t Icrc(const Bytes& frame);
uint32_t StoredIcrc(const Bytes& frame);

// True if the UDP checksum is right, or absent.
bool UdpChecksumOk(const Bytes& frame);
bool IpChecksumOk(const Bytes& frame);  // IPv6 has none

// An AETH with the syndrome; RETH that asks for length bytes.
Bytes Aeth(uint8_t syndrome);
Bytes Reth(uint32_t length);

uint16_t Load16(const Bytes& b, size_t at);
uint32_t Load32(const Bytes& b, size_t at);
uint64_t Load64(const Bytes& b, size_t at);
void Store16(Bytes& b, size_t at, uint16_t v);
void Store32(Bytes& b, size_t at, uint32_t v);
void Store64(Bytes& b, size_t at, uint64_t v);

// From "45c2 003c ...": hexadecimal digits, blanks skipped.
Bytes FromHex(const char* text);

}  // namespace cw::test

#endif
