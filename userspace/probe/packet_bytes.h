// SPDX-License-Identifier: Apache-2.0
//
// Bytes of IPv4/UDP packets to RoCE's port, shared by those that build them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "maps/wire.h"
#include "userspace/model/addr.h"

namespace cw::probe {

inline constexpr size_t kIpLen = 20;
inline constexpr size_t kUdpLen = 8;

inline void PutBe16(uint8_t* p, uint16_t v) {
  p[0] = v >> 8;
  p[1] = v & 0xff;
}
inline void PutBe32(uint8_t* p, uint32_t v) {
  PutBe16(p, v >> 16);
  PutBe16(p + 2, v & 0xffff);
}
inline void StoreLe32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

struct IpSpec {
  Addr from, to;      // IPv4
  uint16_t port = 0;  // UDP source port
  uint8_t tos = 0;
  uint8_t ttl = 64;
  uint16_t ip_id = 0;
};

// IPv4 header without options, and UDP header without checksum, into zeroed bytes. total_len: of the IP packet.
inline void PutIpUdp(const IpSpec& s, size_t total_len, uint8_t* p) {
  p[0] = 0x45;
  p[1] = s.tos;
  PutBe16(p + 2, static_cast<uint16_t>(total_len));
  PutBe16(p + 4, s.ip_id);
  PutBe16(p + 6, 0x4000);  // DF
  p[8] = s.ttl;
  p[9] = 17;
  std::copy_n(s.from.bytes.begin() + 12, 4, p + 12);
  std::copy_n(s.to.bytes.begin() + 12, 4, p + 16);
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpLen; i += 2) sum += p[i] << 8 | p[i + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  PutBe16(p + 10, ~(sum + (sum >> 16)) & 0xffff);
  uint8_t* udp = p + kIpLen;
  PutBe16(udp, s.port);
  PutBe16(udp + 2, CW_ROCE_PORT);
  PutBe16(udp + 4, static_cast<uint16_t>(total_len - kIpLen));
}

}  // namespace cw::probe
