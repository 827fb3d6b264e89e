// SPDX-License-Identifier: Apache-2.0
//
// A path that went silent: is it dead, or does a paused class (priority flow control, IEEE 802.1Qbb) hold its packets
// back? Two things tell a pause:
//   another class  questions in another class, sent over the same path, arrive while in the flows' own class nothing
//                  does. On a dead link neither would. A path that loses many packets lets some of both through, so
//                  answers count only while nothing arrives in the own class.
//   held packets   probes that had been missing arrive after all. What dies with a path never does.
// The first tells within milliseconds, where switches queue the two classes apart; the second once the pause is over.
// The kernel's verdict (bpf/liveness.h) does not wait for either: flows leave a silent path at once, because leaving a
// paused one costs one go-back-N and staying on a dead one costs the job. This rule says what it was: whether it counts
// as a failure for people and for damping. Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <optional>

namespace cw::control {

// The class (DSCP) that questions about a silent path are asked in: one that switches queue apart from that of the
// flows. wanted: as configured, if it is another one than theirs. Switches that go by the upper three bits alone tell
// it from theirs, too.
uint8_t OtherClass(uint8_t flows_dscp, std::optional<uint8_t> wanted);

struct PauseRules {
  int64_t ask_ns = 2'000'000;        // between questions before the first decision …
  int64_t ask_slow_ns = 20'000'000;  // … and afterwards …
  int64_t ask_old_ns = 500'000'000;  // … and once the class counts as broken, so that people learn when it goes on
  int64_t decide_ns = 10'000'000;    // without evidence of a pause for so long, and as many questions as answers: dead
  int answers = 3;
  int held = 3;
  int64_t forget_ns = 100'000'000;     // without an answer for so long, the other class does not pass any more
  int64_t longest_ns = 2'000'000'000;  // a class that stands still for longer is broken
};

enum class Silence : uint8_t { kUnknown = 0, kPaused = 1, kDead = 2 };

// One silent path, from the kernel's verdict to its return.
class PauseWatch {
 public:
  // progress: newest round known to have arrived.
  PauseWatch(int64_t now_ns, uint32_t progress, const PauseRules& rules = {})
      : rules_(rules), began_ns_(now_ns), progress_(progress) {}

  bool Ask(int64_t now_ns);       // true: ask in the other class now
  void Answered(int64_t now_ns);  // the other class passes
  void Held() { ++held_; }        // a probe that had been missing has arrived
  // True: verdict() has changed.
  bool Step(int64_t now_ns, uint32_t progress);

  Silence verdict() const { return verdict_; }
  // Nothing comes through in the flows' class though another one passes, however long that has been so: what a dead
  // path's cause is for people.
  bool ClassStands(int64_t now_ns) const;
  int asked() const { return asked_; }
  int answers() const { return all_answers_; }
  int held() const { return held_; }
  int64_t began_ns() const { return began_ns_; }

 private:
  Silence Judge(int64_t now_ns) const;

  PauseRules rules_;
  int64_t began_ns_;
  int64_t asked_ns_ = INT64_MIN;
  int64_t answered_ns_ = INT64_MIN;
  uint32_t progress_;
  int asked_ = 0;
  int answers_ = 0;  // since the own class last made progress
  int all_answers_ = 0;
  int held_ = 0;
  Silence verdict_ = Silence::kUnknown;
};

}  // namespace cw::control
