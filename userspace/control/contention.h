// SPDX-License-Identifier: Apache-2.0
//
// Which flows of this host should change path, because links are shared unevenly. A host sees its own flows (bytes and
// CNPs) and the queueing delay of its own probes on every path, never the flows of other hosts; several hosts running
// this rule against each other must still end with about ⌈flows/paths⌉ flows on each path, and then stay there.
//
// How it is done:
//  - A flow is a candidate after two windows in a row in which its path queued or it was sent CNPs.
//  - Where the host has flows itself, sharing is arithmetic: a link of capacity C with k flows gives each C/k. k is
//    known from the flow's own rate once the host has seen what a link can carry, and each move counts at once, so the
//    host's flows are assigned jointly, one per path before two.
//  - Where it has none, queueing delay and marks rank the paths. Delay: it grows with the number of flows even when the
//    mean load is the same, because ECN keeps every busy link at the same load. The target must be better than 0.8
//    times the present path in two windows in a row, and beyond the noise of the last windows. Marks: where switches
//    mark before they queue, busy and idle links have the same delay, but only a busy one marks probes. And where paths
//    to several receivers share links, the links' queues are fitted to all their delays (link_queues.h), which tell
//    more than the two paths' own. The better of two random candidates is taken, with a probability per window, so that
//    hosts that see the same idle path do not jump together. Whoever makes the move looks at both once more
//    (best_of_two.h).
//  - Only flows that send, and not little, are load or candidates: a queue pair that a job has done with, and one that
//    carries its control messages, share nothing. What others send is estimated over the last eight windows.
//  - A flow with nothing under way at a window's end had less to send than its path gives: such windows say nothing of
//    the path. Jobs wait at barriers and go on, so for half a second it is load as before, and then measured anew; how
//    many flows of others a path has is believed only while all of ours there are measured.
//  - Every move is measured: the rate before against the rate after. A flow that lost by its move goes back; a path
//  that
//    brought nothing is not tried again until the memory has aged or its queue has changed.
//  - A flow that has moved some times lately rests before the next move, each time for twice as long: where the whole
//    fabric is full, every place is soon as bad as the last one, and wandering costs all and gains nobody anything.
// Sources: two candidates: M. Mitzenmacher, "The power of two choices", 1996; migration with a probability that depends
// on the gain: P. Berenbrink et al., "Distributed selfish load balancing", SODA 2006.
//
// Pure: no clock, no I/O; randomness is seeded by the caller. One thread per ContentionState.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "userspace/control/best_of_two.h"
#include "userspace/model/evidence.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"

namespace cw::control {

// Starting numbers of the rule. Times in windows: a window is the time between two observations (40 ms suits links of
// 100–400 Mbit/s with a probe per millisecond; scale it with the time that the senders' rates need to settle).
struct ContentionRules {
  double queue_over_base = 0.5;    // congested: queueing above this share of the base OWD …
  double queue_floor_ns = 10'000;  // … and above this; or CNPs
  int evidence_windows = 2;        // windows in a row for every condition
  double better_than = 0.8;        // the target's queueing delay ÷ the present path's
  double idle_below = 0.25;        // … and below this ratio the target counts as idle
  double significance = 3.0;       // and the difference ÷ its standard error over the last windows
  double min_gain = 1.25;          // expected rate ÷ present rate, at least
  double sure_gain = 1.4;          // less than this must be seen for twice as long
  double force_gain = 1.3;         // from this gain on one go-back-N is worth it
  double kept_gain = 1.1;          // a move that brought less than this brought nothing
  int settle_windows = 3;          // rates after a move are not looked at for so long
  int rate_windows = 3;            // then averaged over so many, before the next decision
  int hold_windows = 2;            // a flow waits 1 … this many windows, at random, before it moves
  double join_probability = 0.3;   // per window, for moves that rest on queueing delay alone
  double weak_significance = 3.0;  // a flow that shares its path for long follows smaller differences …
  double weak_probability = 0.05;  // … with this probability per window …
  int weak_after_windows = 12;     // … after so many windows on its path
  double memory_s = 4;             // for so long is a measured share believed, against a lower queue there …
  double long_memory_s = 60;       // … and against weak evidence or the wish to spread the host's own flows
  double full_paths = 0.8;         // receiver or fabric full: this share of the paths queues …
  double full_alike = 0.7;         // … and the least queue ÷ the most is above this …
  int full_windows = 10;           // … for so many windows in a row
  double max_moved_share = 0.10;   // of the host's flows per window, but at least one
  double elephant_share = 0.1;  // flows slower than this share of the host's fastest are mice: left alone, and no load
  int restless_moves = 3;       // so many moves lately cost nothing; each more doubles the rest before the next …
  double forgive_s = 15;        // … and one is forgiven after so long
  int unknown_sharers = 3;      // assumed sharers of a congested link whose capacity is not known yet
  double trial_gain = 1.6;      // min_gain of a move that nothing measured on the target speaks for
  double idle_marks = 12;       // a path is idle when so many probes were to be marked there, at the present path's
                                // share, and none was
  double marks_memory_s = 1;    // over which that share is taken
  double pause_s = 0.5;         // a flow that has nothing to send for less than this keeps the rate that it had
};

struct PathObservation {
  uint8_t slot = 0;
  bool usable = false;    // live, assignable, not damped
  int queue_samples = 0;  // probes behind queue_ns in this window; 0 = no value
  double queue_ns = 0;    // typical queueing delay of this window: a mean without the highest twentieth, not more: the
                          // tail tells the number of flows
  double base_ns = 0;     // base OWD
  int ecn_samples = 0;    // probes of this window that arrived with their ECN bits …
  int marked = 0;         // … and CE among them
  std::vector<uint64_t> links;  // names of the links it takes (hashes of hops), so that paths of different pairs that
                                // share a link are one; empty = shares with no other path
};

struct FlowObservation {
  FlowKey key;
  uint8_t slot = 0;    // now; kSlotNone = not known
  uint64_t bytes = 0;  // sent in this window
  uint64_t cnps = 0;   // received in this window
  bool locked = false;
  bool at_rest = false;  // nothing of it is under way at the window's end
};

struct PairObservation {
  PairKey pair;
  bool table_valid =
      false;  // path table is trusted and ports were seen to choose paths; otherwise nothing of this pair moves
  std::vector<PathObservation> paths;
  std::vector<FlowObservation> flows;
};

struct Observation {
  int64_t now_ns = 0;        // any monotonic clock
  int64_t window_ns = 0;     // time since the last observation
  double line_rate_bps = 0;  // the most that a flow can get on a path, 0 = not known
  std::vector<PairObservation> pairs;
  std::vector<Reprobe> reprobed{};  // moves of earlier windows whose candidates were looked at again since the last one
};

struct Move {
  PairKey pair;
  FlowKey flow;
  uint8_t from = 0;
  uint8_t to = 0;
  bool force = false;  // gain is large: worth one go-back-N
  double gain = 0;     // expected rate ÷ present rate
  std::string why;     // one sentence
  Evidence evidence;
  uint8_t second = kSlotNone;  // the other candidate; kSlotNone: there was no other
  double second_gain = 0;      // what it promised
  double queue_ns = 0;         // queueing delay of `to` in the last window …
  double second_queue_ns = 0;  // … and of `second`
};

// Something worth an event that is no move.
struct Finding {
  enum class Kind { kReceiverOrEveryPath, kMoveBroughtNothing, kMoveConfirmed };
  Kind kind;
  PairKey pair;
  FlowKey flow;  // of a move; zero otherwise
  std::string text;
  Evidence evidence;
};

struct Decision {
  std::vector<Move> moves;
  std::vector<Finding> findings;
  std::vector<Settled> settled{};  // what became of Observation::reprobed
};

class ContentionState {
 public:
  ContentionState(const ContentionRules& rules, uint64_t seed);
  ~ContentionState();
  ContentionState(ContentionState&&) noexcept;

  // Everything that the rule keeps between windows.
  struct Impl;
  Impl& impl() { return *impl_; }
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Call once per window with everything seen in it. The caller makes the moves (or only logs them); whether a move was
// made is read from the next observations, so a move that was refused or is pending needs no further word. Where a move
// has a second candidate, the caller may look at both again and take Settle's choice; it then tells what it saw with
// the next window, so that the rule knows which move to wait for.
Decision DecideMoves(const Observation& seen, ContentionState& state);

}  // namespace cw::control
