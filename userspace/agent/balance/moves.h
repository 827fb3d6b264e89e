// SPDX-License-Identifier: Apache-2.0
//
// Moves for balance, from the rule's decision to the kernel's move: both candidates are probed once more in between
// (control/best_of_two.h). Where balance is only observed, what would be moved is told.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/last_look.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/timers.h"
#include "userspace/control/contention.h"
#include "userspace/control/contention_rules.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

// Whether a flow may be put on the slot.
bool IsUsable(const PairState& pair, const probe::Mesh& mesh, uint8_t slot);

// So many rounds of probes at the active interval, and half a window at most: the next one is decided with what came of
// it.
absl::Duration LastLookWait(absl::Duration active_interval, absl::Duration window);

class BalanceMoves {
 public:
  struct Asks {
    May allowed;
    std::function<bool(uint32_t pair)> paths_known;            // and ports are seen to choose them
    std::function<absl::Duration()> look;                      // how long a last look takes
    std::function<void(uint32_t pair, absl::Duration)> hurry;  // probes of it, for so long
    std::function<void()> read_probes;                         // the newest ones
  };

  // All of them outlive it.
  BalanceMoves(const PairTable& pairs, FlowRecords& flows, const probe::Mesh& mesh,
               const control::ContentionState& rule, const Breaker& breaker, const PeerNames& names, const Clock& local,
               const Clock& monotonic, Timers& timers, DryRun& dry_run, EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        mesh_(mesh),
        rule_(rule),
        breaker_(breaker),
        names_(names),
        local_(local),
        monotonic_(monotonic),
        timers_(timers),
        dry_run_(dry_run),
        events_(events),
        asks_(std::move(asks)) {}

  void Apply(const control::Move& move);  // that was decided
  void OnProbe(uint32_t pair, uint8_t slot, int64_t t1_ns, int64_t owd_ns) {
    if (!looks_.empty()) looks_.Answered(pair, slot, t1_ns, owd_ns);
  }
  void Settle(int64_t now_ns);  // those that are due; INT64_MAX: all
  std::vector<control::Reprobe> TakeSeen() { return looks_.TakeSeen(); }
  // The kernel moved the flow. True: as balance had asked for.
  bool OnMade(const cw_ev_move& move);
  void TakeBack();  // all that the kernel has not made yet

 private:
  bool Acts(const FlowKey& flow, uint32_t pair) const;
  bool StillToBeMoved(const control::Move& move, const PairState& pair) const;
  void LookOnceMore(const control::Move& move, uint32_t pair);
  void Settle(const LastLook& look);
  void Make(const control::Move& move, uint32_t pair);
  void TellDry(const control::Move& move);
  void Tell(const control::Move& move, bool act);
  void TellGivenUp(const control::Move& move, const control::Reprobe& seen);

  const PairTable& pairs_;
  FlowRecords& flows_;
  const probe::Mesh& mesh_;
  const control::ContentionState& rule_;
  const Breaker& breaker_;
  const PeerNames& names_;
  const Clock& local_;
  const Clock& monotonic_;
  Timers& timers_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;

  LastLooks looks_;
  absl::flat_hash_map<FlowKey, uint8_t> wishes_;         // by the slot that the flow is to go to
  absl::flat_hash_map<FlowKey, int64_t> dry_logged_ns_;  // when a wish was logged last
};

}  // namespace cw::agent
