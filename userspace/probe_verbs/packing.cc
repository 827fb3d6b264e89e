// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/packing.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "userspace/probe/packet.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe_verbs {
namespace {

constexpr size_t kEthLen = 14;
constexpr uint16_t kEthIp4 = 0x0800;
constexpr uint16_t kEthIp6 = 0x86dd;
constexpr size_t kIp4InGrh = kGrhLen - probe::kIp4Len;

bool FitsAProbe(size_t payload) { return payload >= CW_PROBE_HDR_LEN && payload <= kMaxPayload; }

void PutEthernet(bool v4, uint8_t* frame) {
  std::fill_n(frame, kEthLen, uint8_t{0});
  probe::PutBe16(frame + 12, v4 ? kEthIp4 : kEthIp6);
}

}  // namespace

absl::StatusOr<Unpacked> Unpack(absl::Span<const uint8_t> packet) {
  const auto not_ours = [&] {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes that are no probe of ours", packet.size()));
  };
  if (packet.empty() || (packet[0] != 0x45 && packet[0] >> 4 != 6)) return not_ours();
  const bool v4 = !probe::IsIp6(packet);
  const size_t header = probe::HdrOffset(v4);
  if (packet.size() < header + CW_ICRC_LEN || !FitsAProbe(packet.size() - header - CW_ICRC_LEN)) return not_ours();
  Unpacked u;
  const uint8_t* ip = packet.data();
  const uint8_t* udp = ip + probe::IpLen(v4);
  if (udp[probe::kUdpLen] != CW_BTH_OPCODE) return not_ours();
  const probe::IpSpec header_of = probe::ReadIp(v4, ip);
  u.from = header_of.from;
  u.to = header_of.to;
  u.traffic_class = header_of.tos;
  u.label = header_of.label;
  u.port = probe::GetBe16(udp);
  u.payload = packet.subspan(header, packet.size() - header - CW_ICRC_LEN);
  u.type = u.payload[offsetof(cw_probe_hdr, type)];
  return u;
}

std::optional<Arrival> ReadGrh(absl::Span<const uint8_t> grh, bool v4) {
  if (grh.size() < kGrhLen) return std::nullopt;
  const uint8_t* ip = grh.data() + (v4 ? kIp4InGrh : 0);
  if (ip[0] >> 4 != (v4 ? 4 : 6)) return std::nullopt;
  const probe::IpSpec header = probe::ReadIp(v4, ip);
  return Arrival{.from = header.from, .to = header.to, .traffic_class = header.tos, .hop_limit = header.ttl, .ns = {}};
}

std::optional<absl::Span<uint8_t>> PackFrame(const Arrival& arrival, uint16_t port, absl::Span<const uint8_t> payload,
                                             Frame* frame) {
  if (!FitsAProbe(payload.size()) || arrival.from.is_v4() != arrival.to.is_v4()) return std::nullopt;
  const bool v4 = arrival.from.is_v4();
  const size_t header = probe::HdrOffset(v4);
  const size_t packet_len = header + payload.size() + CW_ICRC_LEN;
  uint8_t* ip = frame->data() + kEthLen;
  std::fill_n(frame->data(), kEthLen + header, uint8_t{0});
  PutEthernet(v4, frame->data());
  probe::PutIpUdp({.from = arrival.from,
                   .to = arrival.to,
                   .port = port,
                   .tos = arrival.traffic_class,
                   .ttl = arrival.hop_limit,
                   .ip_id = probe::kRequestIpId},
                  packet_len, ip);
  uint8_t* bth = ip + probe::IpLen(v4) + probe::kUdpLen;
  bth[0] = CW_BTH_OPCODE;
  probe::PutBe16(bth + 2, 0xffff);
  probe::PutBe32(bth + 4, CW_BTH_QPN);
  std::copy(payload.begin(), payload.end(), ip + header);
  std::fill_n(ip + header + payload.size(), CW_ICRC_LEN, uint8_t{0});
  return absl::Span<uint8_t>(frame->data(), kEthLen + packet_len);
}

std::optional<absl::Span<const uint8_t>> FrameOf(absl::Span<const uint8_t> packet, Frame* frame) {
  if (packet.empty() || kEthLen + packet.size() > frame->size()) return std::nullopt;
  PutEthernet(!probe::IsIp6(packet), frame->data());
  std::copy(packet.begin(), packet.end(), frame->begin() + kEthLen);
  return absl::Span<const uint8_t>(frame->data(), kEthLen + packet.size());
}

absl::Span<const uint8_t> PacketOf(absl::Span<const uint8_t> frame) {
  return frame.size() < kEthLen ? absl::Span<const uint8_t>() : frame.subspan(kEthLen);
}

}  // namespace cw::probe_verbs
