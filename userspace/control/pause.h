// SPDX-License-Identifier: Apache-2.0
//
// A path that went silent: is it dead, or does a paused class (priority flow control, IEEE 802.1Qbb) hold its packets
// back? Two things tell a pause:
//   another class  questions in another class, sent over the same path, arrive while in the flows' own class nothing
//                  does. On a dead link neither would. A path that loses many packets lets some of both through, so
//                  answers count only while nothing arrives in the own class: where it lets nothing through of
//                  what was sent since the question, for as long as it takes to call a path dead. A path that has
//                  healed answers such questions, too, and its own class follows.
//   held packets   the probes that the verdict missed arrive after all, but for one at most. What dies with a path
//                  never does; what was sent once the path had healed arrives whatever it had been.
// The first tells within milliseconds, where switches queue the two classes apart; the second once the pause is over.
// The kernel's verdict (bpf/liveness.h) does not wait for either: flows leave a silent path at once, because leaving a
// paused one costs one go-back-N and staying on a dead one costs the job. This rule says what it was: whether it counts
// as a failure for people and for damping. Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <deque>
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
  int64_t doubt_ns = 50'000'000;       // no answer waits for its own class for longer …
                                       // … but where the path was called dead: there is no hurry then
  int64_t forget_ns = 100'000'000;     // without an answer for so long, the other class does not pass any more
  int64_t longest_ns = 2'000'000'000;  // a class that stands still for longer is broken
};

enum class Silence : uint8_t { kUnknown = 0, kPaused = 1, kDead = 2 };

// What the kernel found when it called the path silent.
struct SilenceFound {
  uint32_t progress = 0;   // newest round known to have arrived
  uint32_t round = 0;      // that another path's answer proved: what was sent since `progress` up to it is missed
  uint32_t limit = 3;      // missed rounds that make a silence …
  int64_t silence_ns = 0;  // … and how long it was
};

// One silent path, from the kernel's verdict to its return.
class PauseWatch {
 public:
  PauseWatch(int64_t now_ns, const SilenceFound& found, const PauseRules& rules = {})
      : rules_(rules), began_ns_(now_ns), found_(found), progress_(found.progress) {}

  // True: ask in the other class now. round: the newest in which probes were sent; token: what the answer echoes.
  bool Ask(int64_t now_ns, uint32_t round, uint32_t token);
  void Answered(int64_t now_ns, uint32_t token);  // to questions of this silence alone
  void Held(uint32_t round);                      // this round's probe has arrived
  // True: verdict() has changed. progress: newest round known to have arrived; round: newest that was sent.
  bool Step(int64_t now_ns, uint32_t progress, uint32_t round);

  Silence verdict() const { return verdict_; }
  // Nothing comes through in the flows' class though another one passes, however long that has been so: what a dead
  // path's cause is for people.
  bool ClassStands(int64_t now_ns) const;
  int asked() const { return asked_; }
  int answers() const { return all_answers_; }
  int held() const;  // of the probes that the verdict missed: those that arrived
  int64_t began_ns() const { return began_ns_; }

 private:
  struct Question {
    uint32_t token = 0, round = 0;
    int64_t asked_ns = 0;
    bool answered = false;
  };
  void CountProven(int64_t now_ns, uint32_t round);
  uint32_t Missed() const;  // rounds, of which 64 are watched at most
  Silence Judge(int64_t now_ns) const;

  PauseRules rules_;
  int64_t began_ns_;
  SilenceFound found_;
  int64_t asked_ns_ = INT64_MIN;
  int64_t answered_ns_ = INT64_MIN;
  uint32_t progress_;
  int asked_ = 0;
  std::deque<Question> open_;  // oldest first: their answers may come, or prove nothing yet
  int answers_ = 0;            // that prove that the own class stands, since it last made progress
  int all_answers_ = 0;
  uint64_t held_ = 0;  // bit i: round progress + 1 + i
  Silence verdict_ = Silence::kUnknown;
};

}  // namespace cw::control
