// SPDX-License-Identifier: Apache-2.0
//
// Why a flow is slow: one of nine causes, told apart from what the sending host's agent can see, window by window
// (about a second each). A rule of thresholds, in this order, the first that fits:
//  - one direction bad: the kernel of the path's sender calls it dead, its probes stop, and no path of the other
//    direction stops;
//  - grey loss: a share of a path's probes is lost beyond what the other paths lose, or the flow's packets are refused
//    out of sequence (NAK) although its path is seen neither to queue nor to be marked;
//  - reordering: likewise, but all that was sent arrived: packets overtake each other;
//  - packet size: packets as large as the flow's do not arrive on its path, and smaller ones do;
//  - no acknowledgements: it has sent data, and none of it is acknowledged: no word of the receiver's host;
//  - slow receiver: the receiver refuses (RNR NAK), or acknowledgements come later than the way there and back takes;
//  - incast: the flow is slowed by congestion notifications, or its path queues, and all paths to this receiver queue
//    alike, which those to other receivers (behind the same leaf, where there are some) do not;
//  - fabric contention: the same, and its path queues more than the others to this receiver, or all paths queue alike
//    whichever receiver they lead to;
//  - slow sender: it is slow, and nothing above holds. Whether anybody waits for it is another question: `awaited`.
// Of a queue only that part counts that other paths of this host do not have, too: the rest may be the host itself. It
// counts whole where packets were marked or lost. Where the NIC's rate is not known, only such flows are slow at all.
// How late acknowledgements are needs no stamps: packets in flight, looked at many times, ÷ packets per second is the
// mean time between a packet's leaving and its acknowledgement (J. Little, Operations Research 9(3), 1961).
// A flow that stops with packets unacknowledged keeps the cause that it had: its queue pair died of it, or waits.
// A verdict is told when two windows in a row agree. docs/causes.md: reasons, confusion matrix, conditions.
//
// Pure: no clock, no I/O. One thread per CauseState.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/model/evidence.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"

namespace cw::control {

enum class Cause : uint8_t {
  kNone = 0,
  kFabricContention,
  kIncast,
  kSlowReceiver,
  kSlowSender,
  kOneDirection,
  kGreyLoss,
  kReordering,
  kPacketSize,
  kNoAcks,
};
inline constexpr int kCauses = 10;
absl::string_view CauseName(Cause cause);  // "none", "fabric contention", "incast", "slow receiver", …

struct CauseRules {
  double slow_share = 0.8;         // slow: below this share of the rate that the flow's own NIC could give it
  double queue_over_base = 0.5;    // a path queues: above this share of its base OWD …
  double queue_floor_ns = 10'000;  // … and above this …
  double floor_bits = 67'648;      // … and above the time that so many bits (two packets) take at the line rate
  double alike = 0.5;              // incast: the least queue of the paths to a receiver ÷ that of the flow's path
  double others_alike = 0.5;       // … unless so many of the other receivers have as much of a least queue
  double cnps_per_s = 60;          // so many congestion notifications slow a flow …
  double marked_queue = 0.2;       // … whose path queues above this share of the floor, …
  double few_cnps_per_s = 5;       // … or so many where the path's probes are marked, too: …
  int least_marked = 4;            // … this many, summed over loss_windows, …
  double marked_share = 0.01;      // … and this share
  double rnr_per_s = 1;            // so many refusals …
  double late_over_rtt = 1.0;      // … or acknowledgements late by this many round trips …
  double late_packets = 4;         // … and by the time in which the flow sends so many packets, are a slow receiver
  double stopped_share = 0.9;      // of the probes lost in one direction: it stopped
  int loss_windows = 4;            // losses are summed over so many windows
  int least_lost = 3;              // probes or NAKs, in that time
  double least_loss = 0.002;       // share of the probes, …
  double least_refused = 0.0005;   // … of a flow's packets: a loss costs a window, within which more count for one
  double least_on_wire = 0.2;      // of the refused ones: with fewer gaps on arrival the receiver lost them, with fewer
                                   // packets that never came they overtook each other
  double loss_sigmas = 4;          // above what the other paths lose, by so many deviations
  int agree_windows = 2;           // in a row, before a verdict is told
};

// One slot of a pair in one window.
struct CausePath {
  uint8_t slot = 0;
  bool usable = true;            // live; its delays count
  bool dead = false;             // by the kernel's verdict …
  bool peer_dead = false;        // … and the peer's path of this number by the peer's
  int queue_samples = 0;         // probes behind queue_ns; 0 = no value
  double queue_ns = 0;           // typical queueing delay (as in contention.h)
  double base_ns = 0;            // base OWD; 0 = not known
  int ecn_samples = 0;           // probes that arrived with their ECN bits …
  int marked = 0;                // … and CE among them
  uint32_t largest_arrives = 0;  // packets above so many bytes, of IP, do not arrive; 0: none that flows can send
  uint64_t last_link = 0;        // name of the last link before the receiver's own; 0 = not known
  uint32_t sent = 0;             // our probes …
  uint32_t answered = 0;         // … and their answers, which come back over any of the peer's paths
  uint32_t peer_sent = 0;        // the peer's probes on its slot of this number, as its round numbers tell, …
  uint32_t peer_heard = 0;       // … and those that arrived here
};

// A flow that this host sends, in one window.
struct CauseFlow {
  FlowKey key;
  uint8_t slot = kSlotNone;
  uint64_t packets = 0;
  uint64_t bytes = 0;
  uint64_t cnps = 0;          // received
  uint64_t rnr_naks = 0;      // received
  uint64_t seq_naks = 0;      // received
  uint64_t acks = 0;          // received …
  bool acks_known = false;    // … as far as is known
  uint32_t largest = 0;       // bytes of IP of its largest packets; 0: not known
  bool gaps_pending = false;  // the peer is being asked what arrived
  bool gaps_known = false;    // it has told lately …
  uint64_t gaps = 0;          // … how often packets were missing on arrival at its NIC, lost or overtaken, …
  uint64_t missing = 0;       // … and how many never came; both told a window later than NAKs
  double in_flight = 0;       // packets not acknowledged, mean of the looks
  int looks = 0;              // 0: not known
  bool moved = false;         // its path changed in this window: NAKs say nothing
  bool other_class = false;   // than the probes: neither their round trip nor their queues are its own
  bool awaited = false;       // a collective waits for what it carries
};

struct CausePair {
  PairKey pair;
  double reverse_ns = 0;  // one way back, typical; 0 = not known
  std::vector<CausePath> paths;
  std::vector<CauseFlow> flows;
};

struct CauseWindow {
  double seconds = 0;
  double line_rate_bps =
      0;  // of the NIC that all these pairs share; 0 = not known: slow is then only who is marked or loses
  std::vector<CausePair> pairs;
};

struct CauseVerdict {
  PairKey pair;
  FlowKey flow;  // zero: of the pair, which is its worst path or flow
  Cause cause = Cause::kNone;
  uint8_t slot = kSlotNone;  // path concerned, where it is one
  bool backwards = false;    // the peer's path of that number, towards us
  bool stopped = false;      // the flow sends nothing any more, and what it sent was not acknowledged
  bool awaited = false;      // slow sender: a collective waits for it
  bool changed = false;      // another than the window before, or awaited otherwise
  std::string text;          // one sentence; "" for none
  Evidence evidence;
};

class CauseState {
 public:
  explicit CauseState(const CauseRules& rules);
  ~CauseState();
  CauseState(CauseState&&) noexcept;

  void SetRules(const CauseRules& rules);  // from the next window on

  // Call once per window with everything of one NIC. The verdicts that hold now: one for each flow and each pair.
  std::vector<CauseVerdict> Judge(const CauseWindow& window);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::control
