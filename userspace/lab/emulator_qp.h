// SPDX-License-Identifier: Apache-2.0
// The RC protocol of one queue pair, apart from sockets and clocks: packets and time come in, packets come out.
//
// Requester: SEND, WRITE and READ messages cut into packets, a window of unacknowledged packets, go-back-N on NAK and
// on timeout, retries as ibv_modify_qp's timeout and retry_cnt mean them (except that a retry_cnt of 7 is finite here).
// Responder: in-order delivery, one NAK per gap, ACK on request and for duplicates, READ responses, CNP on CE.
// Both share the queue pair's rate, which paces whatever carries payload.
//
// Sequence numbers are 64 bits inside and 24 on the wire. Times: nanoseconds of one monotonic clock.
// Source: IBTA 1.7 §9.7 (reliable service). Thread rule: one owner per queue pair.
#pragma once

#include <cstdint>
#include <deque>

#include "userspace/lab/emulator_rate.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {

enum class Operation : uint8_t { kWrite, kWriteImm, kSend, kRead };

struct QpConfig {
  uint32_t qpn = 0;
  uint32_t remote_qpn = 0;
  uint32_t start_psn = 0;          // first PSN of this side's requests
  uint32_t remote_start_psn = 0;   // first PSN expected from the peer
  uint32_t path_mtu = 4096;        // payload bytes per full packet
  uint32_t window = 128;           // packets in flight at most
  uint32_t ack_every = 16;         // packets per requested ACK
  uint8_t timeout = 14;            // 4.096 µs · 2^timeout; 0 = never
  uint8_t retry_cnt = 7;           // go-backs without progress before the queue pair dies
  uint32_t burst_packets = 4;      // packets sent back to back after a late wake-up
  int64_t packet_interval_ns = 0;  // > 0: one payload packet per interval at most
  RateConfig rate;
};

struct Message {
  uint64_t id = 0;
  uint64_t va = 0;  // travels in RETH; tells the receiver which message it is
  uint64_t bytes = 0;
  Operation operation = Operation::kWrite;
};

struct QpCounters {
  uint64_t data_packets = 0;  // sent, with payload, retransmissions included
  uint64_t retransmissions = 0;
  uint64_t timeouts = 0;
  uint64_t naks_received = 0;
  uint64_t naks_sent = 0;
  uint64_t acks_sent = 0;
  uint64_t cnps_sent = 0;
  uint64_t cnps_received = 0;
  uint64_t ce_packets = 0;
  uint64_t duplicates = 0;    // received again
  uint64_t out_of_order = 0;  // received beyond a gap, dropped
  uint64_t invalid = 0;       // received in order with an opcode that cannot follow
};

// What a queue pair tells its owner. Called from within Receive, PollTransmit and Post.
class QpObserver {
 public:
  virtual ~QpObserver() = default;
  // A packet with payload came, new or not; `in_order` when it was delivered.
  virtual void OnData(int64_t now_ns, uint32_t psn, uint32_t bytes, bool in_order) = 0;
  // All of a message's payload was delivered at this side (READ: at the requester).
  virtual void OnMessageDelivered(int64_t now_ns, uint64_t va, uint64_t bytes) = 0;
  // A message that this side posted is complete.
  virtual void OnMessageDone(int64_t now_ns, const Message& message, int64_t posted_ns) = 0;
  // Unacknowledged packets made progress after `stall_ns` without any.
  virtual void OnProgress(int64_t now_ns, int64_t stall_ns) = 0;
  virtual void OnDead(int64_t now_ns) = 0;
  // The other side lacks a packet before one that it got.
  virtual void OnNak(int64_t) {}
};

// A range of sequence numbers of one message as the requester or the READ responder sends it.
struct Segment {
  uint8_t opcode = 0;
  uint32_t payload_bytes = 0;
  bool last = false;
};
uint64_t PacketsOf(uint64_t bytes, uint32_t path_mtu);
// Packet `index` of `packets` of a message; the caller excludes READ requests.
Segment SegmentOf(Operation operation, bool response, uint64_t bytes, uint32_t path_mtu, uint64_t index);

class RcQp {
 public:
  RcQp(const QpConfig& config, QpObserver* observer);

  void Post(const Message& message, int64_t now_ns);

  // `packet` came for this queue pair, with a right ICRC; `ce`: with CE marked.
  void Receive(const RocePacket& packet, bool ce, int64_t now_ns);

  // Fills in transport fields of the next packet to send now: control first, then payload as window and rate allow.
  // False: nothing now. The caller sets addresses, ports and ToS.
  bool PollTransmit(int64_t now_ns, RocePacket* packet);

  // When PollTransmit may next have something without a packet coming in: a paced packet or a timeout. INT64_MAX:
  // never.
  int64_t NextEventNs(int64_t now_ns) const;

  bool dead() const { return dead_; }
  uint64_t messages_outstanding() const { return messages_.size(); }
  const QpCounters& counters() const { return counters_; }
  const QpConfig& config() const { return config_; }
  double RateBps(int64_t now_ns) { return rate_.RateBps(now_ns); }
  // Oldest time since when something is unacknowledged without progress; 0 when nothing is.
  int64_t waiting_since_ns() const { return max_sent_ == una_ ? 0 : progress_ns_; }

 private:
  struct Outstanding {
    Message message;
    uint64_t first = 0;
    uint64_t packets = 0;
    int64_t posted_ns = 0;
  };
  struct ReadReply {  // a READ being answered: packets [index, packets) of a message of `bytes` from sequence `first`
    uint64_t first = 0;
    uint64_t bytes = 0;
    uint64_t index = 0;
  };

  // Requester (emulator_requester.cc).
  void OnAck(const RocePacket& packet, int64_t now_ns);
  void OnReadResponse(const RocePacket& packet, int64_t now_ns);
  void Acknowledge(uint64_t below, int64_t now_ns);
  void GoBack(uint64_t sequence, bool ask_at_once, int64_t now_ns);
  void CheckTimeout(int64_t now_ns);
  bool MaySendRequest() const;
  void BuildRequest(int64_t now_ns, RocePacket* packet);
  void BuildReadRequest(const Outstanding& out, uint64_t index, RocePacket* packet);
  const Outstanding& MessageAt(uint64_t sequence);
  bool WantsAck(bool last);
  void Die(int64_t now_ns);

  // Responder (emulator_responder.cc).
  void OnRequest(const RocePacket& packet, int64_t now_ns);
  void OnReadRequest(const RocePacket& packet, uint64_t sequence);
  void DeliverInOrder(const RocePacket& packet, int64_t now_ns);
  bool PollControl(RocePacket* packet);
  void BuildReadResponse(RocePacket* packet);
  void NoteCe(int64_t now_ns);

  // Pacing, shared.
  bool HasPaced() const { return !replies_.empty() || MaySendRequest(); }
  void Pace(int64_t now_ns, uint32_t payload_bytes);
  RocePacket Blank(uint8_t opcode, uint64_t sequence) const;
  uint64_t Unwrap(uint32_t psn, uint64_t near) const;

  const QpConfig config_;
  QpObserver* const observer_;
  RateController rate_;
  QpCounters counters_;
  bool dead_ = false;
  int64_t next_tx_ns_ = 0;

  std::deque<Outstanding> messages_;
  size_t cursor_ = 0;  // message that MessageAt found last
  uint64_t una_;       // oldest unacknowledged
  uint64_t next_;      // next to send
  uint64_t max_sent_;  // one beyond the highest ever sent
  uint64_t end_;       // one beyond the last posted
  uint64_t asked_;     // one beyond the last packet that asked for an ACK since the last go-back
  uint32_t since_asked_ = 0;
  uint32_t retries_ = 0;
  int64_t deadline_ns_ = 0;  // 0: timer off
  int64_t progress_ns_ = 0;
  bool read_gap_open_ = false;  // a READ was asked again because of this gap

  uint64_t expected_;  // next in-order request
  uint32_t msn_ = 0;
  bool nak_open_ = false;  // a NAK for this gap was sent
  bool send_nak_ = false;
  uint8_t nak_syndrome_ = kSyndromeNakSequence;
  bool send_ack_ = false;
  bool send_cnp_ = false;
  int64_t last_cnp_ns_ = INT64_MIN / 2;
  int64_t cnp_interval_ns_;
  bool in_message_ = false;
  uint64_t message_va_ = 0;
  uint64_t message_bytes_ = 0;
  std::deque<ReadReply> replies_;
};

}  // namespace cw::lab
