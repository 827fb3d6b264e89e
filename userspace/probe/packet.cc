// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/packet.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "maps/siphash.h"

namespace cw::probe {
namespace {

static_assert(std::endian::native == std::endian::little, "MACs are computed over words as they lie in memory");

constexpr size_t kRound = offsetof(cw_probe_hdr, round);
constexpr uint8_t kEct0 = 2;

uint64_t GetBe64(const uint8_t* p) { return uint64_t{GetBe32(p)} << 32 | GetBe32(p + 4); }

size_t HdrOffset(absl::Span<const uint8_t> packet) { return probe::HdrOffset(!IsIp6(packet)); }

// The CRC's state over 8 x 0xff and the headers, variant fields masked. headers: at least IP, UDP and BTH.
uint32_t MaskedHeaderCrc(absl::Span<const uint8_t> headers) {
  const size_t ip_len = IpLen(headers), len = HdrOffset(headers);
  std::array<uint8_t, 8 + kIp6Len + kUdpLen + CW_BTH_LEN> m;
  m.fill(0xff);
  std::copy_n(headers.begin(), len, m.begin() + 8);
  uint8_t* ip = m.data() + 8;
  if (IsIp6(headers)) {
    ip[0] |= 0x0f;  // traffic class, flow label, hop limit
    for (size_t variant : {1, 2, 3, 7}) ip[variant] = 0xff;
  } else {
    for (size_t variant : {1, 8, 10, 11}) ip[variant] = 0xff;  // type of service, TTL, checksum
  }
  for (size_t variant : {ip_len + 6, ip_len + 7, ip_len + kUdpLen + 4}) ip[variant] = 0xff;
  return crc32(0, m.data(), static_cast<uInt>(8 + len));
}

// SipHash of bytes, zero-padded to whole words.
uint64_t Mac(const MacKey& key, absl::Span<const uint8_t> bytes) {
  std::array<__u64, (CW_PROBE_HDR_LEN + CW_MSG_MAX + 7) / 8> words{};
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return cw_siphash24(key.k, words.data(), (bytes.size() + 7) / 8);
}

absl::Status CheckSpec(const PacketSpec& s) {
  if (s.local.is_v4() != s.remote.is_v4()) {
    return absl::InvalidArgumentError(absl::StrFormat("no packet goes from %s to %s: one is IPv4, the other IPv6",
                                                      s.local.ToString(), s.remote.ToString()));
  }
  if (s.port == 0) return absl::InvalidArgumentError("a probe needs a UDP source port");
  if (s.ip_id == 0) return absl::InvalidArgumentError("IP id 0 would be replaced by the kernel");
  if (s.qpn != CW_BTH_QPN && s.qpn >> CW_TEST_QPN_SHIFT != CW_TEST_QPN_TOP) {
    return absl::InvalidArgumentError(absl::StrFormat("QPN 0x%x may be somebody's", s.qpn));
  }
  return absl::OkStatus();
}

// IP, UDP, BTH and the probe header up to the round; everything else of the header 0.
void WriteHeaders(cw_probe_type type, const PacketSpec& s, size_t total_len, uint8_t* p) {
  const auto tos = static_cast<uint8_t>(s.dscp << 2 | kEct0);
  PutIpUdp(
      {.from = s.local, .to = s.remote, .port = s.port, .tos = tos, .ttl = s.ttl, .ip_id = s.ip_id, .label = s.label},
      total_len, p);
  uint8_t* bth = p + IpLen(s.local.is_v4()) + kUdpLen;
  bth[0] = CW_BTH_OPCODE;
  PutBe16(bth + 2, 0xffff);  // P_Key
  PutBe32(bth + 4, s.qpn);   // the byte in front of the QPN is 0
  // acknowledge request and PSN stay 0

  cw_probe_hdr h{};
  PutBe32(reinterpret_cast<uint8_t*>(&h.magic), CW_PROBE_MAGIC);
  h.version = CW_PROBE_VERSION;
  h.type = static_cast<uint8_t>(type);
  h.slot = s.slot;
  h.rslot = 0xff;
  PutBe32(reinterpret_cast<uint8_t*>(&h.session), s.session);
  PutBe16(reinterpret_cast<uint8_t*>(&h.cookie), s.cookie);
  h.key_id = s.key_id;
  if (type == CW_PROBE_REQUEST) PutBe16(reinterpret_cast<uint8_t*>(&h.bitmap[0]), s.slots);
  if (type == CW_PROBE_MESSAGE) PutBe32(reinterpret_cast<uint8_t*>(&h.responder_session), s.receiver_session);
  std::memcpy(bth + CW_BTH_LEN, &h, sizeof(h));
}

}  // namespace

uint32_t ComputeIcrc(absl::Span<const uint8_t> packet) {
  const size_t hdr = HdrOffset(packet);
  return crc32(MaskedHeaderCrc(packet), packet.data() + hdr, static_cast<uInt>(packet.size() - hdr));
}

absl::StatusOr<ProbeTemplate> ProbeTemplate::Make(cw_probe_type type, const PacketSpec& spec) {
  if (absl::Status s = CheckSpec(spec); !s.ok()) return s;
  if (type != CW_PROBE_REQUEST && type != CW_PROBE_TRACE) {
    return absl::InvalidArgumentError("a template is a request or a trace");
  }
  ProbeTemplate t;
  t.key_ = spec.key;
  t.size_ = IpLen(spec.local.is_v4()) + CW_PROBE_UDP_LEN;
  WriteHeaders(type, spec, t.size_, t.bytes_.data());
  t.prefix_crc_ = crc32(MaskedHeaderCrc(t.bytes()), t.bytes_.data() + HdrOffset(t.bytes()), kRound);
  t.SetRound(0);
  return t;
}

void ProbeTemplate::SetRound(uint32_t round) {
  uint8_t* hdr = bytes_.data() + HdrOffset(bytes());
  uint8_t* icrc = bytes_.data() + size_ - CW_ICRC_LEN;
  PutBe32(hdr + kRound, round);
  __u64 words[CW_PROBE_MAC_OFFSET / 8];
  std::memcpy(words, hdr, sizeof(words));
  const uint64_t mac = cw_siphash24(key_.k, words, CW_PROBE_MAC_OFFSET / 8);
  std::memcpy(hdr + CW_PROBE_MAC_OFFSET, &mac, sizeof(mac));
  StoreLe32(icrc, crc32(prefix_crc_, hdr + kRound, static_cast<uInt>(icrc - hdr - kRound)));
}

absl::StatusOr<std::vector<uint8_t>> BuildMessage(const PacketSpec& spec, uint32_t sequence,
                                                  absl::Span<const uint8_t> body, size_t bytes) {
  if (absl::Status s = CheckSpec(spec); !s.ok()) return s;
  if (body.size() > CW_MSG_MAX) {
    return absl::InvalidArgumentError(absl::StrFormat("message body of %d bytes, limit %d", body.size(), CW_MSG_MAX));
  }
  if (bytes > UINT16_MAX) return absl::InvalidArgumentError(absl::StrFormat("message of %d bytes", bytes));
  const size_t needed =
      probe::HdrOffset(spec.local.is_v4()) + CW_PROBE_HDR_LEN + body.size() + CW_MSG_MAC_LEN + CW_ICRC_LEN;
  std::vector<uint8_t> packet(std::max(needed, bytes));
  uint8_t* p = packet.data();
  WriteHeaders(CW_PROBE_MESSAGE, spec, packet.size(), p);
  uint8_t* hdr = p + HdrOffset(packet);
  PutBe32(hdr + kRound, sequence);
  PutBe32(hdr + offsetof(cw_probe_hdr, t1) + 4, static_cast<uint32_t>(body.size()));
  const uint64_t header_mac = Mac(spec.key, {hdr, CW_PROBE_MAC_OFFSET});
  std::memcpy(hdr + CW_PROBE_MAC_OFFSET, &header_mac, sizeof(header_mac));
  std::copy(body.begin(), body.end(), hdr + CW_PROBE_HDR_LEN);
  const size_t signed_len = CW_PROBE_HDR_LEN + body.size();
  const uint64_t body_mac = Mac(spec.key, {hdr, signed_len});
  std::memcpy(hdr + signed_len, &body_mac, sizeof(body_mac));
  StoreLe32(p + packet.size() - CW_ICRC_LEN, ComputeIcrc({p, packet.size() - CW_ICRC_LEN}));
  return packet;
}

absl::StatusOr<MessageView> ParseMessage(absl::Span<const uint8_t> packet) {
  if (packet.size() < CW_PROBE_HDR_LEN + CW_MSG_MAC_LEN) return absl::InvalidArgumentError("message too short");
  cw_probe_hdr h;
  std::memcpy(&h, packet.data(), sizeof(h));
  const auto* raw = packet.data();
  if (GetBe32(raw) != CW_PROBE_MAGIC || h.version != CW_PROBE_VERSION || h.type != CW_PROBE_MESSAGE) {
    return absl::InvalidArgumentError("not a message of this version");
  }
  const uint64_t body_len = GetBe64(raw + offsetof(cw_probe_hdr, t1));
  if (body_len > CW_MSG_MAX || packet.size() != CW_PROBE_HDR_LEN + body_len + CW_MSG_MAC_LEN) {
    return absl::InvalidArgumentError("message length does not fit its header");
  }
  MessageView v;
  v.session = GetBe32(raw + offsetof(cw_probe_hdr, session));
  v.receiver_session = GetBe32(raw + offsetof(cw_probe_hdr, responder_session));
  v.sequence = GetBe32(raw + offsetof(cw_probe_hdr, round));
  v.key_id = h.key_id;
  v.body = packet.subspan(CW_PROBE_HDR_LEN, body_len);
  return v;
}

absl::Status VerifyMessage(absl::Span<const uint8_t> packet, const MacKey& key) {
  if (packet.size() < CW_PROBE_HDR_LEN + CW_MSG_MAC_LEN ||
      packet.size() > CW_PROBE_HDR_LEN + CW_MSG_MAX + CW_MSG_MAC_LEN) {
    return absl::InvalidArgumentError("not the length of a message");
  }
  const size_t signed_len = packet.size() - CW_MSG_MAC_LEN;
  uint64_t header_mac, body_mac;
  std::memcpy(&header_mac, packet.data() + CW_PROBE_MAC_OFFSET, sizeof(header_mac));
  std::memcpy(&body_mac, packet.data() + signed_len, sizeof(body_mac));
  // One comparison of both differences, so that time does not tell which of the two was right.
  const uint64_t wrong =
      (header_mac ^ Mac(key, packet.first(CW_PROBE_MAC_OFFSET))) | (body_mac ^ Mac(key, packet.first(signed_len)));
  return wrong == 0 ? absl::OkStatus() : absl::UnauthenticatedError("message with a wrong MAC");
}

}  // namespace cw::probe
