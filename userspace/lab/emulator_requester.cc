// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "userspace/lab/emulator_qp.h"

namespace cw::lab {

void RcQp::Post(const Message& message, int64_t now_ns) {
  if (dead_) return;
  const uint64_t packets = PacketsOf(message.bytes, config_.path_mtu);
  messages_.push_back({message, end_, packets, now_ns});
  end_ += packets;
}

bool RcQp::MaySendRequest() const { return next_ != end_ && next_ - una_ < config_.window; }

const RcQp::Outstanding& RcQp::MessageAt(uint64_t sequence) {
  if (cursor_ >= messages_.size() || sequence < messages_[cursor_].first) cursor_ = 0;
  while (sequence >= messages_[cursor_].first + messages_[cursor_].packets) ++cursor_;
  return messages_[cursor_];
}

bool RcQp::WantsAck(bool last) {
  const bool wants = last || ++since_asked_ >= config_.ack_every || next_ + 1 - una_ >= config_.window;
  if (wants) since_asked_ = 0;
  return wants;
}

void RcQp::BuildRequest(int64_t now_ns, RocePacket* packet) {
  const Outstanding& out = MessageAt(next_);
  const uint64_t index = next_ - out.first;
  if (max_sent_ == una_) progress_ns_ = now_ns;
  if (next_ < max_sent_) ++counters_.retransmissions;
  uint64_t taken = 1;
  if (out.message.operation == Operation::kRead) {
    BuildReadRequest(out, index, packet);
    taken = out.packets - index;
  } else {
    const Segment s = SegmentOf(out.message.operation, false, out.message.bytes, config_.path_mtu, index);
    *packet = Blank(s.opcode, next_);
    packet->payload_bytes = s.payload_bytes;
    packet->ack_req = WantsAck(s.last);
    packet->reth_va = out.message.va;
    packet->reth_length = static_cast<uint32_t>(out.message.bytes);
    packet->immediate = static_cast<uint32_t>(out.message.id);
  }
  next_ += taken;
  max_sent_ = std::max(max_sent_, next_);
  if (!packet->ack_req) return;
  asked_ = next_;
  if (deadline_ns_ == 0 && config_.timeout != 0) deadline_ns_ = now_ns + (int64_t{4096} << config_.timeout);
}

void RcQp::BuildReadRequest(const Outstanding& out, uint64_t index, RocePacket* packet) {
  *packet = Blank(kReadRequest, next_);
  packet->reth_va = out.message.va + index * config_.path_mtu;
  packet->reth_length = static_cast<uint32_t>(out.message.bytes - index * config_.path_mtu);
  packet->ack_req = true;
}

void RcQp::OnAck(const RocePacket& packet, int64_t now_ns) {
  const uint8_t type = packet.aeth_syndrome & 0xe0;
  const uint64_t sequence = Unwrap(packet.psn, una_);
  const bool nak = type == kSyndromeNakSequence;
  if (nak) {
    ++counters_.naks_received;
    observer_->OnNak(now_ns);
  }
  if (packet.aeth_syndrome == kSyndromeNakInvalid) return Die(now_ns);
  if (!nak && type != 0) return;
  uint64_t below = nak ? sequence : sequence + 1;
  if (below < una_ || below > max_sent_) return;
  // An ACK cannot stand for READ responses that did not come.
  for (const Outstanding& out : messages_) {
    if (out.first >= below) break;
    if (out.message.operation == Operation::kRead) {
      below = std::max(una_, out.first);
      break;
    }
  }
  Acknowledge(below, now_ns);
  if (nak && sequence == una_ && sequence < max_sent_) GoBack(sequence, false, now_ns);
}

void RcQp::OnReadResponse(const RocePacket& packet, int64_t now_ns) {
  const uint64_t sequence = Unwrap(packet.psn, una_);
  const bool in_order = sequence == una_ && sequence < max_sent_;
  observer_->OnData(now_ns, packet.psn, packet.payload_bytes, in_order);
  if (in_order) {
    read_gap_open_ = false;
    Acknowledge(sequence + 1, now_ns);
  } else if (sequence < una_) {
    ++counters_.duplicates;
  } else {
    ++counters_.out_of_order;
    if (read_gap_open_ || sequence >= max_sent_) return;
    read_gap_open_ = true;
    GoBack(una_, true, now_ns);
  }
}

void RcQp::Acknowledge(uint64_t below, int64_t now_ns) {
  if (below <= una_) return;
  observer_->OnProgress(now_ns, now_ns - progress_ns_);
  progress_ns_ = now_ns;
  una_ = below;
  next_ = std::max(next_, una_);
  retries_ = 0;
  const bool waits = asked_ > una_ && config_.timeout != 0;
  deadline_ns_ = waits ? now_ns + (int64_t{4096} << config_.timeout) : 0;
  while (!messages_.empty() && messages_.front().first + messages_.front().packets <= una_) {
    const Outstanding done = messages_.front();
    messages_.pop_front();
    if (cursor_ > 0) --cursor_;
    if (done.message.operation == Operation::kRead) {
      observer_->OnMessageDelivered(now_ns, done.message.va, done.message.bytes);
    }
    observer_->OnMessageDone(now_ns, done.message, done.posted_ns);
  }
}

void RcQp::GoBack(uint64_t sequence, bool ask_at_once, int64_t now_ns) {
  next_ = sequence;
  asked_ = una_;
  deadline_ns_ = 0;
  since_asked_ = ask_at_once ? config_.ack_every : 0;
  if (++retries_ > config_.retry_cnt) Die(now_ns);
}

void RcQp::CheckTimeout(int64_t now_ns) {
  if (deadline_ns_ == 0 || now_ns < deadline_ns_) return;
  ++counters_.timeouts;
  read_gap_open_ = false;
  GoBack(una_, true, now_ns);
}

void RcQp::Die(int64_t now_ns) {
  if (dead_) return;
  dead_ = true;
  observer_->OnDead(now_ns);
}

}  // namespace cw::lab
