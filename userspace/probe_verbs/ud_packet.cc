// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/ud_packet.h"

#include <algorithm>

#include "userspace/probe/packet.h"
#include "userspace/probe/packet_bytes.h"

namespace cw::probe_verbs {
namespace {

using probe::GetBe16;
using probe::GetBe32;

constexpr uint8_t kUdp = 17;
constexpr uint32_t kMask24 = 0xffffff;
constexpr size_t kHeaders = probe::kUdpLen + CW_BTH_LEN + CW_DETH_LEN;  // behind the IP header
constexpr uint8_t kMigrated = 0x40;                                     // BTH: as queue pairs are that never migrate

// The IP packet without what follows it; empty: not one of UDP in one part, without options.
absl::Span<const uint8_t> WholeUdp(absl::Span<const uint8_t> packet) {
  if (packet.size() < probe::kIp4Len) return {};
  if (packet[0] == 0x45) {
    const bool part = (GetBe16(packet.data() + 6) & 0x3fff) != 0;
    const size_t len = GetBe16(packet.data() + 2);
    return part || packet[9] != kUdp || len > packet.size() ? absl::Span<const uint8_t>() : packet.first(len);
  }
  if (packet[0] >> 4 != 6 || packet.size() < probe::kIp6Len || packet[6] != kUdp) return {};
  const size_t len = probe::kIp6Len + GetBe16(packet.data() + 4);
  return len > packet.size() ? absl::Span<const uint8_t>() : packet.first(len);
}

}  // namespace

absl::Span<const uint8_t> BuildUdSend(const UdSend& send, UdPacket* out) {
  const bool v4 = send.from.is_v4();
  if (send.to.is_v4() != v4 || send.payload.size() < CW_PROBE_HDR_LEN || send.payload.size() > kMaxPayload) return {};
  const size_t pad = (4 - send.payload.size() % 4) % 4;
  const size_t covered = probe::IpLen(v4) + kHeaders + send.payload.size() + pad;
  uint8_t* p = out->data();
  std::fill_n(p, covered, uint8_t{0});
  probe::PutIpUdp({.from = send.from,
                   .to = send.to,
                   .port = send.port,
                   .tos = send.traffic_class,
                   .ip_id = probe::kRequestIpId,
                   .label = send.label},
                  covered + CW_ICRC_LEN, p);
  uint8_t* bth = p + probe::IpLen(v4) + probe::kUdpLen;
  bth[0] = CW_UD_OPCODE;
  bth[1] = static_cast<uint8_t>(kMigrated | pad << 4);
  probe::PutBe16(bth + 2, 0xffff);  // P_Key
  probe::PutBe32(bth + 4, send.qpn & kMask24);
  uint8_t* deth = bth + CW_BTH_LEN;
  probe::PutBe32(deth, CW_UD_QKEY);
  probe::PutBe32(deth + 4, send.from_qpn & kMask24);
  std::copy(send.payload.begin(), send.payload.end(), deth + CW_DETH_LEN);
  probe::StoreLe32(p + covered, probe::ComputeIcrc({p, covered}));
  return {p, covered + CW_ICRC_LEN};
}

std::optional<UdSend> ParseUdSend(absl::Span<const uint8_t> packet) {
  packet = WholeUdp(packet);
  if (packet.empty()) return std::nullopt;
  const bool v4 = !probe::IsIp6(packet);
  const size_t headers = probe::IpLen(v4) + kHeaders;
  if (packet.size() < headers + CW_ICRC_LEN) return std::nullopt;
  const uint8_t* ip = packet.data();
  const uint8_t* udp = ip + probe::IpLen(v4);
  const uint8_t* bth = udp + probe::kUdpLen;
  const uint8_t* deth = bth + CW_BTH_LEN;
  const size_t pad = bth[1] >> 4 & 3;
  const bool ours = GetBe16(udp + 2) == CW_ROCE_PORT && GetBe16(udp + 4) == packet.size() - probe::IpLen(v4) &&
                    bth[0] == CW_UD_OPCODE && (bth[1] & 0x0f) == 0 && GetBe32(deth) == CW_UD_QKEY;
  if (!ours || packet.size() < headers + pad + CW_ICRC_LEN) return std::nullopt;
  const probe::IpSpec header = probe::ReadIp(v4, ip);
  return UdSend{.from = header.from,
                .to = header.to,
                .port = GetBe16(udp),
                .traffic_class = header.tos,
                .label = header.label,
                .qpn = GetBe32(bth + 4) & kMask24,
                .from_qpn = GetBe32(deth + 4) & kMask24,
                .payload = packet.subspan(headers, packet.size() - headers - pad - CW_ICRC_LEN)};
}

}  // namespace cw::probe_verbs
