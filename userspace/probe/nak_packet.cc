// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/nak_packet.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace cw::probe {
namespace {

constexpr uint8_t kAcknowledge = 0x11;  // RC
constexpr uint8_t kSequenceError = 0x60;
constexpr uint32_t kMostPsn = 0xffffff;

}  // namespace

absl::StatusOr<std::vector<uint8_t>> BuildSequenceNak(const NakSpec& spec) {
  const bool v4 = spec.from.is_v4();
  if (spec.to.is_v4() != v4) {
    return absl::InvalidArgumentError(absl::StrFormat("no NAK goes from %s to %s: one is IPv4, the other IPv6",
                                                      spec.from.ToString(), spec.to.ToString()));
  }
  if (spec.qpn == 0 || spec.qpn > kMostPsn || spec.psn > kMostPsn) {
    return absl::InvalidArgumentError(absl::StrFormat("no NAK for QPN 0x%x, PSN 0x%x", spec.qpn, spec.psn));
  }
  std::vector<uint8_t> packet(IpLen(v4) + kNakUdpLen);
  uint8_t* p = packet.data();
  // No switch sees it, so the port chooses nothing.
  PutIpUdp({.from = spec.from, .to = spec.to, .port = 0xc000, .ip_id = kRequestIpId}, packet.size(), p);
  uint8_t* bth = p + IpLen(v4) + kUdpLen;
  bth[0] = kAcknowledge;
  PutBe16(bth + 2, 0xffff);  // P_Key
  PutBe32(bth + 4, spec.qpn);
  PutBe32(bth + 8, spec.psn);
  bth[CW_BTH_LEN] = kSequenceError;  // the message sequence number behind it is not known: 0
  const size_t covered = packet.size() - CW_ICRC_LEN;
  StoreLe32(p + covered, ComputeIcrc({p, covered}));
  return packet;
}

}  // namespace cw::probe
