// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/nak_packet.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace cw::probe {
namespace {

constexpr uint8_t kAcknowledge = 0x11;  // RC
constexpr uint8_t kSequenceError = 0x60;
constexpr uint32_t kMask24 = 0xffffff;

}  // namespace

absl::StatusOr<std::array<uint8_t, kNakPacketLen>> BuildSequenceNak(const NakSpec& spec) {
  if (!spec.from.is_v4() || !spec.to.is_v4()) return absl::UnimplementedError("NAKs are built for IPv4 only");
  if (spec.qpn == 0 || spec.qpn > kMask24 || spec.psn > kMask24) {
    return absl::InvalidArgumentError(absl::StrFormat("no NAK for QPN 0x%x, PSN 0x%x", spec.qpn, spec.psn));
  }
  std::array<uint8_t, kNakPacketLen> packet{};
  uint8_t* p = packet.data();
  // No switch sees it, so the port chooses nothing.
  PutIpUdp({.from = spec.from, .to = spec.to, .port = 0xc000, .ip_id = kRequestIpId}, kNakPacketLen, p);
  uint8_t* bth = p + kIpLen + kUdpLen;
  bth[0] = kAcknowledge;
  PutBe16(bth + 2, 0xffff);  // P_Key
  PutBe32(bth + 4, spec.qpn);
  PutBe32(bth + 8, spec.psn);
  bth[CW_BTH_LEN] = kSequenceError;  // the message sequence number behind it is not known: 0
  StoreLe32(p + kNakPacketLen - CW_ICRC_LEN, ComputeIcrc({p, kNakPacketLen - CW_ICRC_LEN}));
  return packet;
}

}  // namespace cw::probe
