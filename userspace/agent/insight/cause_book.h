// SPDX-License-Identifier: Apache-2.0
//
// What the rule of causes (control/causes.h) needs, gathered between its windows: probes answered, the peers' probes
// that arrived, packets in flight, queueing delay; and the verdicts that hold. Apart from the agent, so that tests
// drive it by hand. Thread rule: the agent's loop.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "maps/abi.h"
#include "userspace/control/causes.h"
#include "userspace/control/contention.h"
#include "userspace/model/flow.h"

namespace cw::agent {

// One look at a flow's record; counts are totals.
struct FlowLook {
  FlowKey key;
  uint8_t slot = kSlotNone;
  uint64_t packets = 0, bytes = 0;
  uint64_t cnps = 0;           // since the look before
  bool answers_known = false;  // the three that follow
  uint64_t acks = 0, rnr_naks = 0, seq_naks = 0;
  bool gaps_pending = false;       // WireGaps::Count …
  bool gaps_known = false;         // … the same, and …
  uint64_t gaps = 0, missing = 0;  // … what was told last
  int64_t in_flight = -1;          // packets; −1 = not known
  uint32_t largest = 0;            // CauseFlow::largest
  bool other_class = false;        // than the probes between the two NICs
};

class CauseBook {
 public:
  // A probe of ours came back.
  void Answered(uint32_t pair, uint8_t slot);
  // The peer's path of this number towards us is dead, by its kernel's verdict: until it is heard again.
  void PeersPathDied(uint32_t pair, uint8_t slot);
  // Once per decision window, in this order: the pair, then its flows. `shared` as it stands in the map: its rounds
  // tell what was sent and what came from the peer.
  void LookAtPair(uint32_t index, const control::PairObservation& seen, const cw_pair& shared);
  void PathCarries(uint32_t pair, uint8_t slot, uint32_t largest_arrives);  // CausePath::largest_arrives, from now on
  void LookAtFlow(uint32_t pair, const FlowLook& flow);

  // Flows that a collective waits for in this window.
  void SetAwaited(absl::flat_hash_set<FlowKey> flows) { awaited_ = std::move(flows); }

  // Ends a window of the pairs of one NIC and judges it; verdicts that changed. reverse_ns: by pair, one way back.
  // `lossless`: no record of a probe was lost here in this window.
  struct NicPairs {
    uint32_t nic = 0;
    double line_rate_bps = 0;
    bool lossless = true;
    std::vector<std::pair<uint32_t, double>> pairs;  // index, reverse_ns
  };
  std::vector<control::CauseVerdict> Judge(const NicPairs& nic, double seconds);

  // The pair is no more; its number may go to another one.
  void Forget(uint32_t pair) { pairs_.erase(pair); }

  // After all NICs: flows that were not looked at are gone.
  void EndWindow();

  // Whether people should hear of a verdict that changed: what comes and goes is told once a minute, its end only after
  // its beginning.
  bool WorthTelling(const control::CauseVerdict& changed, int64_t now_ns);

  // Verdicts that hold; of cause none where there is nothing to tell.
  const control::CauseVerdict& Of(const PairKey& pair, const FlowKey& flow = {}) const;
  // Moves for balance cure neither a full receiver's link nor a slow host: what suffers from those stays where it is.
  void Hold(control::Observation& seen) const;

  void SetRules(const control::CauseRules& rules);

 private:
  struct Slot {
    bool present = false;  // since the window began
    bool dead = false;
    double queue_sum = 0;
    int queue_samples = 0;
    double base_ns = 0;
    uint64_t last_link = 0;
    int ecn_samples = 0, marked = 0;
    uint32_t answered = 0, peer_sent = 0, peer_heard = 0;
    bool peer_heard_ever = false;  // since the peer probes its slot of this number
    bool peer_dead = false;        // as the peer says
    uint32_t largest_arrives = 0;
  };
  struct Pair {
    PairKey key;
    std::array<Slot, kMaxSlots> slot;
    uint32_t round = 0;         // up to which our probes are counted …
    uint32_t before_round = 0;  // … at the look before: their answers have come
    uint32_t window_round = 0;  // where the window began
    bool rounds_known = false;
    uint32_t peer_round = 0;  // up to which the peer's are counted
    uint32_t peer_slots = 0;  // that the peer probed at the look before
    std::map<FlowKey, control::CauseFlow> flows;
  };
  struct Totals {
    FlowLook look;
    bool known = false;
    bool seen = false;  // since the last EndWindow
  };
  struct Told {
    control::Cause cause = control::Cause::kNone;
    int64_t at_ns = 0;
    bool open = false;  // its end is to be told
    bool stopped = false;
  };
  static bool NothingNew(const Pair& pair, const control::PairObservation& seen, const cw_pair& shared);
  void CountPeer(Pair& pair, const cw_pair& shared);
  control::CausePair Take(Pair& pair, double reverse_ns, bool lossless);

  control::CauseRules rules_;
  absl::flat_hash_set<FlowKey> awaited_;
  std::map<uint32_t, Pair> pairs_;
  absl::flat_hash_map<FlowKey, Totals> totals_;
  std::map<uint32_t, control::CauseState> nics_;
  absl::flat_hash_map<std::pair<PairKey, FlowKey>, control::CauseVerdict> verdicts_;
  absl::flat_hash_map<std::pair<PairKey, FlowKey>, Told> told_;
};

// What people are alarmed by: that a sender has little to send is no fault where nobody waits for it.
inline control::Cause CauseToTell(const control::CauseVerdict& verdict) {
  const bool idle = verdict.cause == control::Cause::kSlowSender && !verdict.awaited;
  return idle ? control::Cause::kNone : verdict.cause;
}

// Into a peer's status or a flow, where nothing stands yet.
template <typename Message>
void AddCause(const control::CauseVerdict& why, Message& out) {
  if (!out.cause_text().empty()) return;
  out.set_cause(std::string(control::CauseName(why.cause)));
  out.set_cause_text(why.text);
}

}  // namespace cw::agent
