// SPDX-License-Identifier: Apache-2.0
//
// Bytes of UDP packets to RoCE's port over IPv4 and IPv6, shared by those that build them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "maps/wire.h"
#include "userspace/model/addr.h"

namespace cw::probe {

inline constexpr size_t kIp4Len = 20;
inline constexpr size_t kIp6Len = 40;
inline constexpr size_t kUdpLen = 8;

inline size_t IpLen(bool v4) { return v4 ? kIp4Len : kIp6Len; }
// packet: not empty, from its IP header on.
inline bool IsIp6(absl::Span<const uint8_t> packet) { return packet[0] >> 4 == 6; }
inline size_t IpLen(absl::Span<const uint8_t> packet) { return IpLen(!IsIp6(packet)); }

inline void PutBe16(uint8_t* p, uint16_t v) {
  p[0] = v >> 8;
  p[1] = v & 0xff;
}
inline void PutBe32(uint8_t* p, uint32_t v) {
  PutBe16(p, v >> 16);
  PutBe16(p + 2, v & 0xffff);
}
inline uint16_t GetBe16(const uint8_t* p) { return static_cast<uint16_t>(p[0] << 8 | p[1]); }
inline uint32_t GetBe32(const uint8_t* p) { return uint32_t{GetBe16(p)} << 16 | GetBe16(p + 2); }
inline void StoreLe32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

struct IpSpec {
  Addr from, to;      // of one family
  uint16_t port = 0;  // UDP source port
  uint8_t tos = 0;    // IPv6: traffic class
  uint8_t ttl = 64;
  uint16_t ip_id = 0;  // IPv4 only
  uint32_t label = 0;  // IPv6 only: flow label, 20 bits
};

inline void PutIp4(const IpSpec& s, size_t total_len, uint8_t* p) {
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
  for (size_t i = 0; i < kIp4Len; i += 2) sum += p[i] << 8 | p[i + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  PutBe16(p + 10, ~(sum + (sum >> 16)) & 0xffff);
}

inline void PutIp6(const IpSpec& s, size_t total_len, uint8_t* p) {
  PutBe32(p, 6u << 28 | uint32_t{s.tos} << 20 | (s.label & 0xfffff));
  PutBe16(p + 4, static_cast<uint16_t>(total_len - kIp6Len));
  p[6] = 17;
  p[7] = s.ttl;
  std::copy(s.from.bytes.begin(), s.from.bytes.end(), p + 8);
  std::copy(s.to.bytes.begin(), s.to.bytes.end(), p + 24);
}

// What PutIp4 and PutIp6 write, but for the port. ip: a whole header, without options.
inline IpSpec ReadIp(bool v4, const uint8_t* ip) {
  if (v4) {
    return {.from = Addr::FromV4(GetBe32(ip + 12)),
            .to = Addr::FromV4(GetBe32(ip + 16)),
            .tos = ip[1],
            .ttl = ip[8],
            .ip_id = GetBe16(ip + 4)};
  }
  return {.from = Addr::FromBytes(ip + 8),
          .to = Addr::FromBytes(ip + 24),
          .tos = static_cast<uint8_t>(GetBe32(ip) >> 20),
          .ttl = ip[7],
          .label = GetBe32(ip) & 0xfffff};
}

// IP header without options, and UDP header without checksum, into zeroed bytes. total_len: of the IP packet. RoCE has
// no UDP checksum over IPv6 either (RFC 6935: what is checked by other means, here ICRC and MAC, may do without).
inline void PutIpUdp(const IpSpec& s, size_t total_len, uint8_t* p) {
  const bool v4 = s.from.is_v4();
  v4 ? PutIp4(s, total_len, p) : PutIp6(s, total_len, p);
  uint8_t* udp = p + IpLen(v4);
  PutBe16(udp, s.port);
  PutBe16(udp + 2, CW_ROCE_PORT);
  PutBe16(udp + 4, static_cast<uint16_t>(total_len - IpLen(v4)));
}

}  // namespace cw::probe
