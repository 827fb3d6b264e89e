// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_qp.h"

namespace cw::lab {

void RcQp::OnRequest(const RocePacket& packet, int64_t now_ns) {
  const uint64_t sequence = Unwrap(packet.psn, expected_);
  const bool read = packet.opcode == kReadRequest;
  const bool in_order = sequence == expected_;
  if (!read) observer_->OnData(now_ns, packet.psn, packet.payload_bytes, in_order);
  if (sequence > expected_) {
    ++counters_.out_of_order;
    if (!nak_open_) nak_open_ = send_nak_ = true;
    return;
  }
  if (!in_order) {
    ++counters_.duplicates;
    if (read) {
      OnReadRequest(packet, sequence);
    } else {
      send_ack_ = true;
    }
    return;
  }
  // A NAK that is still to be sent is sent: what came too early was dropped, and it may have been the last.
  nak_open_ = false;
  if (read) {
    OnReadRequest(packet, sequence);
    expected_ += PacketsOf(packet.reth_length, config_.path_mtu);
    msn_ = (msn_ + 1) & kPsnMask;
  } else {
    DeliverInOrder(packet, now_ns);
  }
}

void RcQp::DeliverInOrder(const RocePacket& packet, int64_t now_ns) {
  if (StartsMessage(packet.opcode) == in_message_) {
    ++counters_.invalid;
    nak_syndrome_ = kSyndromeNakInvalid;
    send_nak_ = true;
    return;
  }
  ++expected_;
  if (StartsMessage(packet.opcode)) {
    message_va_ = packet.reth_va;
    message_bytes_ = 0;
  }
  message_bytes_ += packet.payload_bytes;
  in_message_ = !EndsMessage(packet.opcode);
  if (!in_message_) {
    msn_ = (msn_ + 1) & kPsnMask;
    observer_->OnMessageDelivered(now_ns, message_va_, message_bytes_);
  }
  if (packet.ack_req) send_ack_ = true;
}

// A READ that is asked again, whole or from its middle, replaces what is left of it and of the READs after it: the
// requester asks for those again too.
void RcQp::OnReadRequest(const RocePacket& packet, uint64_t sequence) {
  while (!replies_.empty() && replies_.back().first + PacketsOf(replies_.back().bytes, config_.path_mtu) > sequence) {
    replies_.pop_back();
  }
  replies_.push_back({sequence, packet.reth_length, 0});
}

void RcQp::BuildReadResponse(RocePacket* packet) {
  ReadReply& reply = replies_.front();
  const Segment s = SegmentOf(Operation::kRead, true, reply.bytes, config_.path_mtu, reply.index);
  *packet = Blank(s.opcode, reply.first + reply.index);
  packet->payload_bytes = s.payload_bytes;
  packet->aeth_syndrome = kSyndromeAck;
  packet->aeth_msn = msn_;
  ++reply.index;
  if (s.last) replies_.pop_front();
}

bool RcQp::PollControl(RocePacket* packet) {
  if (send_cnp_) {
    send_cnp_ = false;
    *packet = Blank(kCnp, 0);
    packet->becn = true;
    packet->payload_bytes = 16;
    ++counters_.cnps_sent;
    return true;
  }
  if (send_nak_) {
    send_nak_ = send_ack_ = false;  // a NAK acknowledges everything before the expected PSN
    *packet = Blank(kAcknowledge, expected_);
    packet->aeth_syndrome = nak_syndrome_;
    ++counters_.naks_sent;
  } else if (send_ack_ && replies_.empty()) {  // an ACK must not overtake READ responses before it
    send_ack_ = false;
    *packet = Blank(kAcknowledge, expected_ - 1);
    packet->aeth_syndrome = kSyndromeAck;
    ++counters_.acks_sent;
  } else {
    return false;
  }
  packet->aeth_msn = msn_;
  return true;
}

void RcQp::NoteCe(int64_t now_ns) {
  ++counters_.ce_packets;
  if (now_ns - last_cnp_ns_ < cnp_interval_ns_) return;
  last_cnp_ns_ = now_ns;
  send_cnp_ = true;
}

}  // namespace cw::lab
