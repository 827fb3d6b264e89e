// SPDX-License-Identifier: Apache-2.0
//
// The breaker: do moves for balance do harm? Each moved flow is compared with its own past and with the flows of the
// host that were not moved:
//  - NAKs (PSN sequence errors) from the move on, less the one that a move may cost, beyond what the flow got before
//    and what the others get now. A move off a deep queue that does not wait for it overtakes what stands there, and
//    each packet of that which comes in between may cost one: they count once it has drained;
//  - standstill: packets under way, and none acknowledged;
//  - goodput: its rate after the move ÷ before, beside the others' over the same times.
// NAKs and standstill are judged as soon as they are seen, also where the flow is moved again before its rate could be
// looked at; goodput once the rate has settled. Harmful moves of the last minute trip the breaker when they are two or
// more and more than half of those judged. The caller then undoes the moves and only observes.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/control/returns.h"
#include "userspace/model/evidence.h"
#include "userspace/model/flow.h"

namespace cw::control {

struct BreakerRules {
  double past_s = 2;                // a flow's own past: rates and NAKs over so long before the move
  double settle_s = 1;              // rates after a move are not looked at for so long …
  double judge_s = 2;               // … then over so long; the verdict falls then
  double naks_sure = 4;             // more NAKs than expected by this, and by 3 √expected: harmful at once
  double standstill_s = 0.5;        // so long without an acknowledgement while packets are under way
  double goodput_factor = 0.6;      // less than this × what the past, and the others' change, let expect
  double min_bytes_per_s = 10'000;  // slower flows' rates say nothing
  double window_s = 60;
  int harmful = 2;                    // so many harmful moves within the window …
  double harmful_share = 0.5;         // … that are more than this share of those judged
  int64_t hold_ns = 600'000'000'000;  // then it re-arms by itself; 0: never
};

// Totals of a sent flow, as they are now.
struct BreakerFlow {
  FlowKey key;
  uint64_t bytes = 0;  // sent
  uint64_t acks = 0;   // positive acknowledgements received …
  uint64_t naks = 0;   // … and sequence NAKs; both 0 where the own queue pair is not known
  bool answers_known = false;
  bool in_flight = false;  // not all that was sent is acknowledged
};

struct BreakerMove {
  FlowKey flow;
  uint32_t pair = 0;
  ReturnPlace from, to;
  int64_t spill_ns = 0;  // for so long may what was overtaken cost NAKs
};

struct BreakerVerdict {
  BreakerMove move;
  bool harmful = false;
  std::string text;
  Evidence evidence;
};

struct BreakerTrip {
  std::vector<BreakerMove> undo;  // moves of the window that were not found harmless, the newest of each flow
  int judged = 0, harmful = 0;
  std::string text;
};

class Breaker {
 public:
  explicit Breaker(const BreakerRules& rules) : rules_(rules) {}

  void SetHold(int64_t hold_ns) { rules_.hold_ns = hold_ns; }

  // The kernel made a move for balance. A flow that is still being judged is judged now, on what was seen. One that
  // only goes back where it was is not judged: it would hide the harm that it undoes.
  void Moved(const BreakerMove& move, int64_t now_ns);
  // The flow changed path for another reason (its path died): it is not judged any more.
  void Forget(const FlowKey& flow) { trials_.erase(flow); }
  // All sent flows, some times per second.
  void See(const std::vector<BreakerFlow>& flows, int64_t now_ns);

  std::vector<BreakerVerdict> TakeVerdicts();
  // Once, when it trips.
  std::optional<BreakerTrip> TakeTrip(int64_t now_ns);
  bool tripped() const { return tripped_; }
  // The hold is over: true once.
  bool Rearmed(int64_t now_ns);
  void Reset();
  int64_t RearmsAtNs() const { return tripped_ && rules_.hold_ns > 0 ? tripped_ns_ + rules_.hold_ns : 0; }
  // Within the window.
  int Judged(int64_t now_ns) const { return Count(now_ns, false); }
  int Harmful(int64_t now_ns) const { return Count(now_ns, true); }

 private:
  struct Point {
    int64_t ns = 0;
    uint64_t bytes = 0, acks = 0, naks = 0;
  };
  struct History {
    std::deque<Point> points;  // of the last past_s + settle_s + judge_s, about ten per second
    int64_t progress_ns = 0;   // last acknowledgement, or nothing under way
    int64_t moved_ns = INT64_MIN;
    std::optional<BreakerMove> last;  // move
    bool answers_known = false;
    bool seen = false;
  };
  struct Trial {
    BreakerMove move;
    int64_t moved_ns = 0;
  };
  struct Judged_ {
    BreakerMove move;
    int64_t ns = 0;
    bool harmful = false;
  };

  int Count(int64_t now_ns, bool harmful_only) const;
  // Per second between two times; nullopt where the flow was not seen then.
  std::optional<Point> Between(const History& history, int64_t from_ns, int64_t to_ns) const;
  std::optional<BreakerVerdict> JudgeAnswers(const Trial& trial, const History& history, int64_t now_ns) const;
  std::optional<BreakerVerdict> JudgeGoodput(const Trial& trial, const History& history, int64_t now_ns) const;
  double OthersNakRate(const Trial& trial, int64_t now_ns) const;
  std::optional<double> OthersChange(const Trial& trial, int64_t now_ns) const;
  void Decide(BreakerVerdict verdict, int64_t now_ns);
  bool JudgeEarly(const Trial& trial, int64_t now_ns);

  BreakerRules rules_;
  absl::flat_hash_map<FlowKey, History> flows_;
  absl::flat_hash_map<FlowKey, Trial> trials_;
  std::deque<Judged_> judged_;
  std::vector<BreakerVerdict> verdicts_;
  bool tripped_ = false;
  int64_t tripped_ns_ = 0;
};

}  // namespace cw::control
