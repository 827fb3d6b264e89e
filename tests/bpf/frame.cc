// SPDX-License-Identifier: Apache-2.0
#include "tests/bpf/frame.h"

#include <zlib.h>

namespace cw::test {
namespace {

constexpr size_t kEth = 14;
constexpr size_t kIp4 = 20;
constexpr size_t kUdp = 8;

bool Is6(const Bytes& b) { return b[IpOffset(b)] >> 4 == 6; }

void Put16(Bytes& b, uint32_t v) {
  b.push_back(static_cast<uint8_t>(v >> 8));
  b.push_back(static_cast<uint8_t>(v));
}

void Put32(Bytes& b, uint32_t v) {
  Put16(b, v >> 16);
  Put16(b, v & 0xffff);
}

uint32_t Sum(const Bytes& b, size_t from, size_t len) {
  uint32_t sum = 0;
  for (size_t i = 0; i < len; ++i) sum += i % 2 == 0 ? b[from + i] << 8 : b[from + i];
  return sum;
}

uint16_t Fold(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// Sum over pseudo header and datagram, RFC 768 and RFC 8200.
uint16_t UdpSum(const Bytes& b) {
  size_t ip = IpOffset(b), udp = UdpOffset(b);
  uint32_t len = Load16(b, udp + 4);
  const uint32_t addresses = Is6(b) ? Sum(b, ip + 8, 32) : Sum(b, ip + 12, 8);
  return Fold(addresses + 17 + len + Sum(b, udp, len));
}

Bytes Headers(const Frame& f) {
  Bytes b = {0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1};
  for (int i = 0; i < f.vlan_tags; ++i) {
    Put16(b, i == 0 && f.vlan_tags > 1 ? 0x88a8 : 0x8100);
    Put16(b, 100 + i);
  }
  Put16(b, f.ethertype != 0 ? f.ethertype : f.ip6 ? 0x86dd : 0x0800);
  return b;
}

void PutIp4(Bytes& b, const Frame& f, size_t udp_len) {
  const size_t ip = b.size();
  b.push_back(f.version_ihl);
  b.push_back(f.tos);
  Put16(b, static_cast<uint32_t>(kIp4 + f.ip_options.size() + udp_len) + f.ip_len_delta);
  Put16(b, f.ip_id);
  Put16(b, f.frag);
  b.push_back(f.ttl);
  b.push_back(f.protocol);
  Put16(b, 0);
  Put32(b, f.saddr);
  Put32(b, f.daddr);
  b.insert(b.end(), f.ip_options.begin(), f.ip_options.end());
  Store16(b, ip + 10, static_cast<uint16_t>(~Fold(Sum(b, ip, b.size() - ip))));
}

void PutIp6(Bytes& b, const Frame& f, size_t udp_len) {
  Put32(b, 6u << 28 | uint32_t{f.tos} << 20 | f.label);
  Put16(b, static_cast<uint32_t>(f.ip6_extension.size() + udp_len) + f.ip_len_delta);
  b.push_back(f.ip6_extension.empty() ? f.protocol : f.ip6_next);
  b.push_back(f.ttl);
  for (uint32_t address : {f.saddr, f.daddr}) {
    const Bytes bytes = AddressBytes(address, true);
    b.insert(b.end(), bytes.begin(), bytes.end());
  }
  b.insert(b.end(), f.ip6_extension.begin(), f.ip6_extension.end());
}

}  // namespace

size_t ExtLength(uint8_t opcode) {
  switch (opcode) {
    case 0x81:
      return 16;  // 16 zero bytes behind a CNP's BTH
    case 0x64:
      return 8;
    case 0x65:
      return 12;
  }
  if (opcode >= 0x40) return 0;
  switch (opcode & 0x1f) {
    case 0x03:
    case 0x05:
    case 0x09:
    case 0x0d:
    case 0x0f:
    case 0x10:
    case 0x11:
    case 0x16:
    case 0x17:
      return 4;
    case 0x06:
    case 0x0a:
    case 0x0c:
    case 0x1d:
      return 16;
    case 0x0b:
    case 0x1c:
      return 20;
    case 0x12:
      return 12;
    case 0x13:
    case 0x14:
      return 28;
  }
  return 0;
}

Bytes Build(const Frame& f) {
  Bytes ext = f.ext.empty() ? Bytes(ExtLength(f.opcode), 0) : f.ext;
  size_t udp_len = kUdp + 12 + ext.size() + f.payload.size() + 4;
  Bytes b = Headers(f);
  if (f.ip6)
    PutIp6(b, f, udp_len);
  else
    PutIp4(b, f, udp_len);
  const size_t udp = b.size();
  Put16(b, f.sport);
  Put16(b, f.dport);
  Put16(b, static_cast<uint32_t>(udp_len) + f.udp_len_delta);
  Put16(b, 0);
  b.push_back(f.opcode);
  b.push_back(f.bth_flags);
  Put16(b, 0xffff);
  Put32(b, f.dqpn);
  Put32(b, (f.ack_req ? 0x80000000u : 0) | f.psn);
  b.insert(b.end(), ext.begin(), ext.end());
  b.insert(b.end(), f.payload.begin(), f.payload.end());
  b.insert(b.end(), 4, 0);
  const bool plain = f.ip6 ? f.ip6_extension.empty() : f.version_ihl == 0x45;
  if (!plain || f.ethertype != 0 || f.udp_len_delta || f.ip_len_delta) return b;
  uint32_t icrc = Icrc(b);
  for (int i = 0; i < 4; ++i) b[b.size() - 4 + i] = static_cast<uint8_t>(icrc >> (8 * i));
  if (f.udp_checksum) {
    uint16_t check = static_cast<uint16_t>(~UdpSum(b));
    Store16(b, udp + 6, check == 0 ? 0xffff : check);
  }
  return b;
}

size_t IpOffset(const Bytes& frame) {
  size_t at = kEth - 2;
  while (Load16(frame, at) == 0x8100 || Load16(frame, at) == 0x88a8) at += 4;
  return at + 2;
}

size_t UdpOffset(const Bytes& frame) { return IpOffset(frame) + (Is6(frame) ? 40 : kIp4); }

Bytes AddressBytes(uint32_t address, bool ip6) {
  Bytes b(12, 0);
  if (ip6)
    b[0] = 0xfd;
  else
    b[10] = b[11] = 0xff;
  Put32(b, address);
  return b;
}

uint32_t Icrc(const Bytes& frame) {
  const size_t ip = IpOffset(frame), udp = UdpOffset(frame) - ip;
  const size_t len = udp + Load16(frame, ip + udp + 4);
  Bytes masked(8, 0xff);
  masked.insert(masked.end(), frame.begin() + ip, frame.begin() + ip + len - 4);
  if (Is6(frame)) {
    masked[8] |= 0x0f;  // traffic class, flow label, hop limit
    for (size_t at : {1, 2, 3, 7}) masked[8 + at] = 0xff;
  } else {
    for (size_t at : {1, 8, 10, 11}) masked[8 + at] = 0xff;  // type of service, TTL, checksum
  }
  for (size_t at : {udp + 6, udp + 7, udp + kUdp + 4}) masked[8 + at] = 0xff;
  return static_cast<uint32_t>(crc32(0, masked.data(), static_cast<uInt>(masked.size())));
}

uint32_t StoredIcrc(const Bytes& frame) {
  const size_t udp = UdpOffset(frame);
  return __builtin_bswap32(Load32(frame, udp + Load16(frame, udp + 4) - 4));
}

bool UdpChecksumOk(const Bytes& frame) { return Load16(frame, UdpOffset(frame) + 6) == 0 || UdpSum(frame) == 0xffff; }

bool IpChecksumOk(const Bytes& frame) { return Is6(frame) || Fold(Sum(frame, IpOffset(frame), kIp4)) == 0xffff; }

Bytes Aeth(uint8_t syndrome) { return {syndrome, 0, 0, 1}; }

Bytes Reth(uint32_t length) {
  Bytes b(12, 0);
  Put32(b, length);
  return b;
}

uint16_t Load16(const Bytes& b, size_t at) { return static_cast<uint16_t>(b.at(at) << 8 | b.at(at + 1)); }
uint32_t Load32(const Bytes& b, size_t at) { return static_cast<uint32_t>(Load16(b, at)) << 16 | Load16(b, at + 2); }
uint64_t Load64(const Bytes& b, size_t at) { return static_cast<uint64_t>(Load32(b, at)) << 32 | Load32(b, at + 4); }

void Store16(Bytes& b, size_t at, uint16_t v) {
  b.at(at) = static_cast<uint8_t>(v >> 8);
  b.at(at + 1) = static_cast<uint8_t>(v);
}

void Store32(Bytes& b, size_t at, uint32_t v) {
  Store16(b, at, static_cast<uint16_t>(v >> 16));
  Store16(b, at + 2, static_cast<uint16_t>(v));
}

void Store64(Bytes& b, size_t at, uint64_t v) {
  Store32(b, at, static_cast<uint32_t>(v >> 32));
  Store32(b, at + 4, static_cast<uint32_t>(v));
}

Bytes FromHex(const char* text) {
  Bytes b;
  int half = -1;
  for (; *text; ++text) {
    int digit = *text >= '0' && *text <= '9' ? *text - '0' : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (half < 0) {
      half = digit;
    } else {
      b.push_back(static_cast<uint8_t>(half << 4 | digit));
      half = -1;
    }
  }
  return b;
}

}  // namespace cw::test
