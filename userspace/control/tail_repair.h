// SPDX-License-Identifier: Apache-2.0
//
// When the last packets of a message, or the acknowledgements for them, died with a path, nothing follows that would
// show the gap: reliable connections wait for their timer, seconds with NCCL's settings. This rule says when the
// requester is to be asked for a resend, by a NAK (PSN sequence error) for the first PSN that is not acknowledged.
//
// Such a NAK says nothing that is not so: all before that PSN was acknowledged. It costs one go-back-N and, without
// progress, one of the queue pair's retries, so there are few, further and further apart, and none once what was under
// way at the path's death has been acknowledged. Source: InfiniBand Architecture Specification vol. 1 release 1.4,
// 9.7.5.2.8 (NAK codes), 9.7.5.1.1 (responses outside of what is outstanding are ignored). Safety: docs/tail-repair.md.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>

namespace cw::control {

struct TailRules {
  int64_t quiet_ns = 2'000'000;   // so long without progress before the first NAK …
  int backoff = 4;                // … and so many times longer before each further one
  int max_naks = 3;               // per death; ibv_modify_qp's retry_cnt is at most 7
  int64_t life_ns = 500'000'000;  // what stalls later has another reason
};

// A sent flow as its record says at this moment.
struct TailView {
  uint32_t next = 0;   // PSN that would be sent next for the first time
  uint32_t acked = 0;  // first PSN that is not acknowledged
  // Both are exact: reliable connection, an acknowledgement was seen in the present life of the queue pair, every PSN
  // since was followed.
  bool known = false;
  bool can_go = false;  // what is resent takes a path that is alive
  // False: another NIC carries its packets, and where programs run in the driver, acknowledgements come in unseen. Then
  // what it sends is its progress, and `acked` may be behind: a NAK for what was acknowledged since is ignored.
  bool acks_seen = true;
  uint64_t sent = 0;  // packets so far, resent ones too
};

enum class TailStep : uint8_t {
  kWait = 0,
  kNak = 1,     // ask for a resend from view.acked on, now
  kDone = 2,    // what was under way is acknowledged, or cannot be told: forget the flow
  kGiveUp = 3,  // asked as often as may be, or for too long, without progress: forget the flow
};

// PSNs sent and not acknowledged; 0 when that cannot be told.
uint32_t Unacknowledged(const TailView& view);

// One flow whose path, or whose acknowledgements' path, has just been declared dead.
class TailWatch {
 public:
  TailWatch(const TailView& view, int64_t now_ns, const TailRules& rules = {});

  // Another death concerns the flow: what is under way now belongs to the tail as well. NAKs sent so far count on.
  void Extend(const TailView& view, int64_t now_ns);
  // What to do now. view: read just before, because a NAK for a PSN that has been acknowledged since is not sent.
  TailStep Step(const TailView& view, int64_t now_ns);

  int naks() const { return naks_; }
  int64_t began_ns() const { return began_ns_; }

 private:
  TailRules rules_;
  int64_t began_ns_;
  int64_t quiet_since_ns_;
  int64_t wait_ns_;
  uint32_t tail_end_;  // first PSN that was not under way
  uint32_t acked_;
  uint64_t sent_;
  int naks_ = 0;
};

}  // namespace cw::control
