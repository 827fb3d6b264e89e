// SPDX-License-Identifier: Apache-2.0
//
// Messages between two agents over the probes' datagrams: sequence numbers and a bounded queue on the way out, MACs and
// replay protection (a sliding window as in RFC 4303, 3.4.3) on the way in. Messages may be lost; nothing is repeated.
// The window does not outlive the agent. So a message also names the session of ours that it is for, and one for an
// earlier session is refused, as is one of an earlier session of the peer than its newest probe, by the pinned maps.
// Thread rule: one thread (the agent's loop).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/abi.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/messages.h"
#include "userspace/probe/packet.h"
#include "userspace/probe/raw_socket.h"

namespace cw::probe {

// Which messages of a peer were seen. A new session is accepted only if it is newer (serial numbers, RFC 1982).
class ReplayWindow {
 public:
  bool Accept(uint32_t session, uint32_t sequence);  // false: seen before, or too old to tell

 private:
  bool any_ = false;
  uint32_t session_ = 0;
  uint32_t newest_ = 0;
  uint64_t seen_ = 0;  // bit i: newest_ − i
};

struct MessageStats {
  uint64_t sent = 0;
  uint64_t send_errors = 0;
  uint64_t queue_dropped = 0;  // the queue was full
  uint64_t accepted = 0;
  uint64_t rejected_mac = 0;
  uint64_t rejected_replay = 0;
  uint64_t rejected_malformed = 0;
  uint64_t passed_over = 0;  // of a kind or version that only a newer agent knows
};

class MessageChannel {
 public:
  // Sends the packet; Unavailable: try later.
  using SendFn = std::function<absl::Status(uint32_t pair, absl::Span<const uint8_t> packet)>;
  MessageChannel(Mesh* mesh, SendFn send, size_t queue_limit = 256);

  // NotFound: no such pair. FailedPrecondition: the pair has no slot yet. ResourceExhausted: the queue is full.
  // Ok: sent, or queued until Flush.
  absl::Status Send(uint32_t pair, const Body& body);
  // By this UDP port and in this class.
  absl::Status SendOn(uint32_t pair, const Body& body, uint16_t port, uint8_t dscp);
  // Padded to so many bytes from the IP header on, at once. Unavailable: others wait, or the NIC's queue is full; other
  // codes: it cannot be sent.
  absl::Status SendPadded(uint32_t pair, const Body& body, uint16_t port, size_t bytes);
  void Flush();  // sends what is queued, as far as it goes
  bool queue_empty() const { return queue_.empty(); }

  // A record of cw_msg_ring. Unauthenticated, AlreadyExists (a replay), InvalidArgument, NotFound; Unimplemented:
  // right, but of a kind that this agent does not know.
  absl::StatusOr<Body> Receive(const cw_ev_msg& record);

  void ForgetPair(uint32_t pair);
  const MessageStats& stats() const { return stats_; }

 private:
  absl::Status Enqueue(uint32_t pair, const Body& body, const PacketSpec& spec);
  struct Queued {
    uint32_t pair;
    std::vector<uint8_t> packet;
  };
  uint8_t ChooseSlot(uint32_t pair, uint32_t sequence) const;
  uint32_t& SequenceOf(uint32_t pair);
  bool OfEarlierLives(uint32_t pair, const MessageView& message) const;

  Mesh* mesh_;
  SendFn send_;
  size_t queue_limit_;
  std::deque<Queued> queue_;
  std::map<uint32_t, uint32_t> sequence_;
  uint32_t forgotten_sequence_ = 0;  // the largest of pairs that were removed
  std::map<uint32_t, ReplayWindow> seen_;
  MessageStats stats_;
};

}  // namespace cw::probe
