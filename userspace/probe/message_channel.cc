// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/message_channel.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/probe/packet.h"

namespace cw::probe {

bool ReplayWindow::Accept(uint32_t session, uint32_t sequence) {
  if (!any_ || static_cast<int32_t>(session - session_) > 0) {
    any_ = true;
    session_ = session;
    newest_ = sequence;
    seen_ = 1;
    return true;
  }
  if (session != session_) return false;
  const auto ahead = static_cast<int32_t>(sequence - newest_);
  if (ahead > 0) {
    seen_ = ahead < 64 ? seen_ << ahead | 1 : 1;
    newest_ = sequence;
    return true;
  }
  const uint32_t behind = newest_ - sequence;
  if (behind >= 64 || (seen_ >> behind & 1) != 0) return false;
  seen_ |= uint64_t{1} << behind;
  return true;
}

MessageChannel::MessageChannel(Mesh* mesh, SendFn send, size_t queue_limit)
    : mesh_(mesh), send_(std::move(send)), queue_limit_(queue_limit) {}

// Live slots in turn, so that a path that just died costs one message in n; with none alive any slot.
uint8_t MessageChannel::ChooseSlot(uint32_t pair, uint32_t sequence) const {
  const uint32_t used = mesh_->slots(pair).used_mask();
  if (used == 0) return CW_SLOT_NONE;
  uint32_t mask = used & Load(mesh_->shared(pair)->live_mask);
  if (mask == 0) mask = used;
  for (uint32_t skip = sequence % static_cast<uint32_t>(std::popcount(mask)); skip > 0; --skip) mask &= mask - 1;
  return static_cast<uint8_t>(std::countr_zero(mask));
}

absl::Status MessageChannel::Send(uint32_t pair, const Body& body) {
  if (!mesh_->Has(pair)) return absl::NotFoundError(absl::StrCat("no pair ", pair));
  const uint8_t slot = ChooseSlot(pair, SequenceOf(pair) + 1);
  if (slot == CW_SLOT_NONE) return absl::FailedPreconditionError("the pair has no path slot yet");
  return Enqueue(pair, body, mesh_->Packet(pair, slot, mesh_->slots(pair).port(slot)));
}

absl::Status MessageChannel::SendOn(uint32_t pair, const Body& body, uint16_t port, uint8_t dscp) {
  if (!mesh_->Has(pair)) return absl::NotFoundError(absl::StrCat("no pair ", pair));
  PacketSpec spec = mesh_->Packet(pair, 0, port);
  spec.dscp = dscp;
  return Enqueue(pair, body, spec);
}

absl::Status MessageChannel::SendPadded(uint32_t pair, const Body& body, uint16_t port, size_t bytes) {
  if (!mesh_->Has(pair)) return absl::NotFoundError(absl::StrCat("no pair ", pair));
  Flush();
  if (!queue_.empty()) return absl::UnavailableError("other messages wait");
  auto encoded = EncodeBody(body);
  if (!encoded.ok()) return encoded.status();
  auto packet = BuildMessage(mesh_->Packet(pair, 0, port), ++SequenceOf(pair), *encoded, bytes);
  if (!packet.ok()) return packet.status();
  absl::Status sent = send_(pair, *packet);
  ++(sent.ok() ? stats_.sent : stats_.send_errors);
  return sent;
}

absl::Status MessageChannel::Enqueue(uint32_t pair, const Body& body, const PacketSpec& spec) {
  if (queue_.size() >= queue_limit_) {
    ++stats_.queue_dropped;
    return absl::ResourceExhaustedError("the message queue is full");
  }
  const uint32_t sequence = SequenceOf(pair) + 1;
  auto bytes = EncodeBody(body);
  if (!bytes.ok()) return bytes.status();
  auto packet = BuildMessage(spec, sequence, *bytes);
  if (!packet.ok()) return packet.status();
  SequenceOf(pair) = sequence;
  queue_.push_back({pair, *std::move(packet)});
  Flush();
  return absl::OkStatus();
}

void MessageChannel::Flush() {
  while (!queue_.empty()) {
    const absl::Status s = send_(queue_.front().pair, queue_.front().packet);
    if (absl::IsUnavailable(s)) return;
    ++(s.ok() ? stats_.sent : stats_.send_errors);
    queue_.pop_front();
  }
}

// For session 0: an agent that does not tell yet (an earlier release's), or that has not heard ours.
bool MessageChannel::OfEarlierLives(uint32_t pair, const MessageView& message) const {
  const uint32_t heard = Load(mesh_->shared(pair)->peer_session);
  if (heard != 0 && static_cast<int32_t>(message.session - heard) < 0) return true;
  return message.receiver_session != 0 && message.receiver_session != mesh_->session();
}

absl::StatusOr<Body> MessageChannel::Receive(const cw_ev_msg& record) {
  const uint32_t pair = record.pair;
  if (!mesh_->Has(pair)) return absl::NotFoundError(absl::StrCat("message for unknown pair ", pair));
  if (record.len > sizeof(record.packet)) {
    ++stats_.rejected_malformed;
    return absl::InvalidArgumentError("message record longer than its buffer");
  }
  const absl::Span<const uint8_t> packet(record.packet, record.len);
  auto view = ParseMessage(packet);
  if (!view.ok()) {
    ++stats_.rejected_malformed;
    return view.status();
  }
  if (!mesh_->ReceiveKeyValid(pair, view->key_id) ||
      !VerifyMessage(packet, mesh_->ReceiveKey(pair, view->key_id)).ok()) {
    ++stats_.rejected_mac;
    return absl::UnauthenticatedError("message with a wrong MAC");
  }
  if (OfEarlierLives(pair, *view) || !seen_[pair].Accept(view->session, view->sequence)) {
    ++stats_.rejected_replay;
    return absl::AlreadyExistsError("message seen before");
  }
  auto body = DecodeBody(view->body);
  ++(body.ok()                              ? stats_.accepted
     : absl::IsUnimplemented(body.status()) ? stats_.passed_over
                                            : stats_.rejected_malformed);
  return body;
}

// A peer that was removed and comes back remembers what it had of this session.
uint32_t& MessageChannel::SequenceOf(uint32_t pair) {
  return sequence_.try_emplace(pair, forgotten_sequence_).first->second;
}

void MessageChannel::ForgetPair(uint32_t pair) {
  if (const auto last = sequence_.find(pair); last != sequence_.end()) {
    forgotten_sequence_ = std::max(forgotten_sequence_, last->second);
    sequence_.erase(last);
  }
  seen_.erase(pair);
  std::erase_if(queue_, [pair](const Queued& q) { return q.pair == pair; });
}

}  // namespace cw::probe
