// SPDX-License-Identifier: Apache-2.0
//
// The breaker of moves for balance: control/breaker.h judges whether they do harm, here they are undone and operators
// told. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/breaker.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class Breaker {
 public:
  struct Asks {
    May allowed;
    std::function<void()> take_back;  // the moves that the kernel has not made yet
  };

  // wanted: otherwise nothing is judged. hold: after a trip; zero: until it is reset. All of them outlive it.
  Breaker(bool wanted, absl::Duration hold, const PairTable& pairs, const FlowBook& flows, FlowRecords& records,
          const PeerNames& names, const Clock& monotonic, Journal& journal, Asks asks);

  void SetHold(absl::Duration hold);
  bool MayBalance() const { return asks_.allowed().Acts(Capability::kBalance) && !(rule_ && rule_->tripped()); }
  const std::string& why() const { return why_; }  // it tripped last

  void OnMoved(const cw_ev_move& move);  // a move for balance was made …
  void Forget(const FlowKey& flow);      // … or the flow changed path for another reason
  void Step(int64_t now_ns);             // once per window
  v1::ActionReply Reset(const api::Caller& caller);
  void AddTo(v1::BreakerStatus& out, int64_t now_ns) const;

 private:
  void See(int64_t now_ns);
  void Tell(const control::BreakerVerdict& verdict);
  void Trip(const control::BreakerTrip& trip);
  bool Undo(const control::BreakerMove& move);

  std::optional<control::Breaker> rule_;  // nullopt: not wanted
  absl::Duration hold_;
  const PairTable& pairs_;
  const FlowBook& flows_;
  FlowRecords& records_;
  const PeerNames& names_;
  const Clock& monotonic_;
  Journal& journal_;
  const Asks asks_;

  std::string why_;
  uint32_t trips_ = 0;
  int64_t seen_ns_ = 0;
};

}  // namespace cw::agent
