// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/roce_packet.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "userspace/lab/roce_packet_crc.h"

namespace cw::lab {
namespace {

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr size_t kBthBytes = 12;
constexpr uint32_t kStateAfterDummyLrh = 0xDEBB20E3u;  // eight bytes of ones from the all-ones state

void Put16(uint8_t* p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v >> 8);
  p[1] = static_cast<uint8_t>(v);
}
void Put24(uint8_t* p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v >> 16);
  Put16(p + 1, v);
}
void Put32(uint8_t* p, uint32_t v) {
  Put16(p, v >> 16);
  Put16(p + 2, v);
}
uint32_t Get16(const uint8_t* p) { return uint32_t{p[0]} << 8 | p[1]; }
uint32_t Get24(const uint8_t* p) { return uint32_t{p[0]} << 16 | Get16(p + 1); }
uint32_t Get32(const uint8_t* p) { return Get16(p) << 16 | Get16(p + 2); }

uint16_t IpChecksum(const uint8_t* ip) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Bytes; i += 2) sum += Get16(ip + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

bool IsKnown(uint8_t op) {
  return op <= kSendLast || op == kSendOnly || (op >= kWriteFirst && op <= kAcknowledge) || op == kCnp;
}

size_t ExtendedBytes(uint8_t op) {
  return (HasReth(op) ? 16u : 0u) + (HasAeth(op) ? 4u : 0u) + (HasImmediate(op) ? 4u : 0u);
}

size_t EncodeExtended(const RocePacket& packet, uint8_t* p) {
  uint8_t* const start = p;
  if (HasReth(packet.opcode)) {
    Put32(p, static_cast<uint32_t>(packet.reth_va >> 32));
    Put32(p + 4, static_cast<uint32_t>(packet.reth_va));
    Put32(p + 8, packet.reth_rkey);
    Put32(p + 12, packet.reth_length);
    p += 16;
  }
  if (HasAeth(packet.opcode)) {
    p[0] = packet.aeth_syndrome;
    Put24(p + 1, packet.aeth_msn);
    p += 4;
  }
  if (HasImmediate(packet.opcode)) {
    Put32(p, packet.immediate);
    p += 4;
  }
  return static_cast<size_t>(p - start);
}

void ParseExtended(const uint8_t* p, RocePacket* packet) {
  if (HasReth(packet->opcode)) {
    packet->reth_va = uint64_t{Get32(p)} << 32 | Get32(p + 4);
    packet->reth_rkey = Get32(p + 8);
    packet->reth_length = Get32(p + 12);
    p += 16;
  }
  if (HasAeth(packet->opcode)) {
    packet->aeth_syndrome = p[0];
    packet->aeth_msn = Get24(p + 1);
    p += 4;
  }
  if (HasImmediate(packet->opcode)) packet->immediate = Get32(p);
}

}  // namespace

bool HasReth(uint8_t op) { return op == kWriteFirst || op == kWriteOnly || op == kWriteOnlyImm || op == kReadRequest; }
bool HasAeth(uint8_t op) {
  return op == kAcknowledge || op == kReadResponseFirst || op == kReadResponseLast || op == kReadResponseOnly;
}
bool HasImmediate(uint8_t op) { return op == kWriteLastImm || op == kWriteOnlyImm; }
bool IsRequest(uint8_t op) { return op <= kSendLast || op == kSendOnly || (op >= kWriteFirst && op <= kReadRequest); }
bool IsReadResponse(uint8_t op) { return op >= kReadResponseFirst && op <= kReadResponseOnly; }
bool EndsMessage(uint8_t op) {
  return op == kSendLast || op == kSendOnly || (op >= kWriteLast && op <= kWriteOnlyImm) || op == kReadResponseLast ||
         op == kReadResponseOnly;
}
bool StartsMessage(uint8_t op) {
  return op == kSendFirst || op == kSendOnly || op == kWriteFirst || op == kWriteOnly || op == kWriteOnlyImm ||
         op == kReadResponseFirst || op == kReadResponseOnly;
}

namespace {

size_t EncodeIp4(const RocePacket& packet, size_t udp_bytes, uint8_t* out) {
  out[0] = 0x45;
  out[1] = packet.tos;
  Put16(out + 2, static_cast<uint32_t>(kIpv4Bytes + udp_bytes));
  Put16(out + 4, packet.ip_id);
  Put16(out + 6, 0x4000);
  out[8] = packet.ttl;
  out[9] = 17;
  Put16(out + 10, 0);
  Put32(out + 12, packet.source);
  Put32(out + 16, packet.destination);
  Put16(out + 10, IpChecksum(out));
  return kIpv4Bytes;
}

size_t EncodeIp6(const RocePacket& packet, size_t udp_bytes, uint8_t* out) {
  Put32(out, 6u << 28 | uint32_t{packet.tos} << 20 | packet.label);
  Put16(out + 4, static_cast<uint32_t>(udp_bytes));
  out[6] = 17;
  out[7] = packet.ttl;
  std::copy(std::begin(kLabPrefix6), std::end(kLabPrefix6), out + 8);
  Put32(out + 20, packet.source);
  std::copy(std::begin(kLabPrefix6), std::end(kLabPrefix6), out + 24);
  Put32(out + 36, packet.destination);
  return kIpv6Bytes;
}

// Length of the IP header, 0 when it is not of UDP, cut, or has what we do not send. Fills in its fields, and *total.
size_t ParseIp(std::span<const uint8_t> ip, RocePacket* packet, size_t* total) {
  if (ip.size() >= kIpv6Bytes && ip[0] >> 4 == 6) {
    *total = kIpv6Bytes + Get16(&ip[4]);
    const bool ours = std::equal(std::begin(kLabPrefix6), std::end(kLabPrefix6), &ip[8]) &&
                      std::equal(std::begin(kLabPrefix6), std::end(kLabPrefix6), &ip[24]);
    if (!ours || ip[6] != 17) return 0;
    packet->ip6 = true;
    packet->tos = static_cast<uint8_t>(Get16(&ip[0]) >> 4);
    packet->label = Get32(&ip[0]) & 0xfffff;
    packet->ttl = ip[7];
    packet->source = Get32(&ip[20]);
    packet->destination = Get32(&ip[36]);
    return kIpv6Bytes;
  }
  if (ip.size() < kIpv4Bytes || ip[0] >> 4 != 4) return 0;
  const size_t ihl = (ip[0] & 0x0fu) * 4;
  const bool fragment = (Get16(&ip[6]) & 0x3fff) != 0;
  *total = Get16(&ip[2]);
  if (ihl < kIpv4Bytes || ip[9] != 17 || fragment) return 0;
  packet->tos = ip[1];
  packet->ip_id = static_cast<uint16_t>(Get16(&ip[4]));
  packet->ttl = ip[8];
  packet->source = Get32(&ip[12]);
  packet->destination = Get32(&ip[16]);
  return ihl;
}

}  // namespace

size_t EncodeHeaders(const RocePacket& packet, uint8_t* out) {
  const size_t extended = ExtendedBytes(packet.opcode);
  const size_t udp_bytes = kUdpBytes + kBthBytes + extended + packet.payload_bytes + packet.PadBytes() + kIcrcBytes;
  const size_t ip_bytes = packet.ip6 ? EncodeIp6(packet, udp_bytes, out) : EncodeIp4(packet, udp_bytes, out);
  uint8_t* udp = out + ip_bytes;
  Put16(udp, packet.source_port);
  Put16(udp + 2, kRoceUdpPort);
  Put16(udp + 4, static_cast<uint32_t>(udp_bytes));
  Put16(udp + 6, 0);
  uint8_t* bth = udp + kUdpBytes;
  const bool cnp = packet.opcode == kCnp;
  bth[0] = packet.opcode;
  bth[1] = static_cast<uint8_t>((cnp ? 0 : 0x40) | packet.PadBytes() << 4);
  Put16(bth + 2, 0xffff);
  bth[4] = packet.becn ? 0x40 : 0;
  Put24(bth + 5, packet.dest_qpn);
  bth[8] = packet.ack_req ? 0x80 : 0;
  Put24(bth + 9, packet.psn);
  return ip_bytes + kUdpBytes + kBthBytes + EncodeExtended(packet, bth + kBthBytes);
}

std::optional<RocePacket> ParsePacket(std::span<const uint8_t> ip, size_t* ip_bytes) {
  RocePacket packet;
  size_t total = 0;
  const size_t ihl = ParseIp(ip, &packet, &total);
  if (ihl == 0 || total > ip.size() || total < ihl + kUdpBytes + kBthBytes + kIcrcBytes) return std::nullopt;
  const uint8_t* udp = &ip[ihl];
  if (Get16(udp + 2) != kRoceUdpPort || Get16(udp + 4) != total - ihl) return std::nullopt;
  const uint8_t* bth = udp + kUdpBytes;
  const size_t extended = ExtendedBytes(bth[0]);
  const size_t pad = (bth[1] >> 4) & 3;
  const size_t fixed = ihl + kUdpBytes + kBthBytes + extended + pad + kIcrcBytes;
  if (!IsKnown(bth[0]) || (bth[1] & 0x0f) != 0 || total < fixed) return std::nullopt;
  packet.source_port = static_cast<uint16_t>(Get16(udp));
  packet.opcode = bth[0];
  packet.becn = (bth[4] & 0x40) != 0;
  packet.dest_qpn = Get24(bth + 5);
  packet.ack_req = (bth[8] & 0x80) != 0;
  packet.psn = Get24(bth + 9);
  packet.payload_bytes = static_cast<uint32_t>(total - fixed);
  ParseExtended(bth + kBthBytes, &packet);
  *ip_bytes = total;
  return packet;
}

uint32_t IcrcState(std::span<const uint8_t> headers) {
  const bool v6 = headers[0] >> 4 == 6;
  const size_t ip_bytes = v6 ? kIpv6Bytes : (headers[0] & 0x0fu) * 4;
  std::array<uint8_t, 60 + kUdpBytes + kBthBytes> masked;
  const size_t n = ip_bytes + kUdpBytes + kBthBytes;
  std::copy_n(headers.begin(), n, masked.begin());
  if (v6) {
    masked[0] |= 0x0f;
    masked[1] = masked[2] = masked[3] = masked[7] = 0xff;
  } else {
    masked[1] = masked[8] = masked[10] = masked[11] = 0xff;
  }
  masked[ip_bytes + 6] = masked[ip_bytes + 7] = 0xff;
  masked[ip_bytes + kUdpBytes + 4] = 0xff;
  const uint32_t state = Crc32RawTable(kStateAfterDummyLrh, {masked.data(), n});
  return Crc32Raw(state, headers.subspan(n));
}

uint32_t Icrc(std::span<const uint8_t> ip_to_padding) { return ~IcrcState(ip_to_padding); }

bool IcrcIsRight(std::span<const uint8_t> ip_to_icrc) {
  const size_t n = ip_to_icrc.size() - kIcrcBytes;
  const uint8_t* p = &ip_to_icrc[n];
  const uint32_t stored = p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
  return Icrc(ip_to_icrc.first(n)) == stored;
}

uint32_t IcrcPatch(uint32_t icrc, std::span<const uint8_t> delta, size_t bytes_after) {
  return icrc ^ Crc32Multiply(Crc32ZerosOperator(bytes_after), Crc32RawTable(0, delta));
}

uint16_t UdpSourcePort(uint32_t local_qpn, uint32_t remote_qpn) {
  uint64_t v = uint64_t{local_qpn} * remote_qpn;
  v ^= v >> 20;
  v ^= v >> 40;
  const uint32_t label = static_cast<uint32_t>(v & 0xfffff);
  return static_cast<uint16_t>(((label & 0x3fff) ^ (label >> 14)) | 0xc000);
}

}  // namespace cw::lab
