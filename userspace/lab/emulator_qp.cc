// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_qp.h"

#include <algorithm>

namespace cw::lab {
namespace {

// Sequences start beyond one PSN cycle, so that a PSN just below the first still has a sequence.
uint64_t FirstSequence(uint32_t psn) { return (uint64_t{1} << 24) + (psn & kPsnMask); }

}  // namespace

uint64_t PacketsOf(uint64_t bytes, uint32_t path_mtu) {
  return std::max<uint64_t>(1, (bytes + path_mtu - 1) / path_mtu);
}

Segment SegmentOf(Operation operation, bool response, uint64_t bytes, uint32_t path_mtu, uint64_t index) {
  const uint64_t packets = PacketsOf(bytes, path_mtu);
  const bool first = index == 0;
  const bool last = index + 1 == packets;
  Segment s;
  s.last = last;
  s.payload_bytes = last ? static_cast<uint32_t>(bytes - index * path_mtu) : path_mtu;
  if (response) {
    s.opcode =
        first ? (last ? kReadResponseOnly : kReadResponseFirst) : (last ? kReadResponseLast : kReadResponseMiddle);
  } else if (operation == Operation::kSend) {
    s.opcode = first ? (last ? kSendOnly : kSendFirst) : (last ? kSendLast : kSendMiddle);
  } else {
    const bool imm = operation == Operation::kWriteImm;
    const uint8_t ending = first ? (imm ? kWriteOnlyImm : kWriteOnly) : (imm ? kWriteLastImm : kWriteLast);
    s.opcode = last ? ending : static_cast<uint8_t>(first ? kWriteFirst : kWriteMiddle);
  }
  return s;
}

RcQp::RcQp(const QpConfig& config, QpObserver* observer)
    : config_(config),
      observer_(observer),
      rate_(config.rate),
      una_(FirstSequence(config.start_psn)),
      next_(una_),
      max_sent_(una_),
      end_(una_),
      asked_(una_),
      expected_(FirstSequence(config.remote_start_psn)),
      cnp_interval_ns_(absl::ToInt64Nanoseconds(config.rate.cnp_interval)) {}

void RcQp::Receive(const RocePacket& packet, bool ce, int64_t now_ns) {
  if (dead_) return;
  const bool request = IsRequest(packet.opcode);
  const bool response = IsReadResponse(packet.opcode);
  if (ce && (response || (request && packet.opcode != kReadRequest))) NoteCe(now_ns);
  if (request) {
    OnRequest(packet, now_ns);
  } else if (response) {
    OnReadResponse(packet, now_ns);
  } else if (packet.opcode == kAcknowledge) {
    OnAck(packet, now_ns);
  } else if (packet.opcode == kCnp) {
    ++counters_.cnps_received;
    rate_.OnCnp(now_ns);
  }
}

bool RcQp::PollTransmit(int64_t now_ns, RocePacket* packet) {
  if (dead_) return false;
  CheckTimeout(now_ns);
  if (dead_) return false;
  if (PollControl(packet)) return true;
  if (now_ns < next_tx_ns_) return false;
  if (!replies_.empty()) {
    BuildReadResponse(packet);
  } else if (MaySendRequest()) {
    BuildRequest(now_ns, packet);
  } else {
    return false;
  }
  if (packet->payload_bytes > 0) ++counters_.data_packets;
  Pace(now_ns, packet->payload_bytes);
  return true;
}

int64_t RcQp::NextEventNs(int64_t now_ns) const {
  if (dead_) return INT64_MAX;
  if (send_nak_ || send_cnp_ || (send_ack_ && replies_.empty())) return now_ns;
  int64_t at = deadline_ns_ != 0 ? deadline_ns_ : INT64_MAX;
  if (HasPaced()) at = std::min(at, next_tx_ns_);
  return at;
}

void RcQp::Pace(int64_t now_ns, uint32_t payload_bytes) {
  constexpr double kHeaderBytes = 62;  // Ethernet, IPv4, UDP, BTH, ICRC, FCS
  const double bits = 8.0 * (payload_bytes + kHeaderBytes);
  const auto interval = std::max(config_.packet_interval_ns, static_cast<int64_t>(bits * 1e9 / rate_.RateBps(now_ns)));
  const int64_t slack = interval * (std::max(1u, config_.burst_packets) - 1);
  next_tx_ns_ = std::max(next_tx_ns_, now_ns - slack) + interval;
}

RocePacket RcQp::Blank(uint8_t opcode, uint64_t sequence) const {
  RocePacket packet;
  packet.opcode = opcode;
  packet.dest_qpn = config_.remote_qpn;
  packet.psn = static_cast<uint32_t>(sequence & kPsnMask);
  return packet;
}

uint64_t RcQp::Unwrap(uint32_t psn, uint64_t near) const {
  return near + static_cast<uint64_t>(int64_t{PsnDiff(psn, static_cast<uint32_t>(near & kPsnMask))});
}

}  // namespace cw::lab
