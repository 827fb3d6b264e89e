// SPDX-License-Identifier: Apache-2.0
//
// What operators ask for of single flows: placements and locks, for a while or for good. Each answer says what changed
// and how to undo it. Thread rule: the agent's loop.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class Steering {
 public:
  // movers: the first that knows a flow moves it. All of them outlive it.
  Steering(std::vector<Mover*> movers, const PairTable& pairs, const probe::Mesh& mesh, const PeerNames& names,
           Deadlines& deadlines, Modes& modes, const Clock& monotonic, Journal& journal)
      : movers_(std::move(movers)),
        pairs_(pairs),
        mesh_(mesh),
        names_(names),
        deadlines_(deadlines),
        modes_(modes),
        monotonic_(monotonic),
        journal_(journal) {}

  absl::StatusOr<v1::ActionReply> Set(const api::Caller& caller, const v1::SteerSetRequest& request);
  absl::StatusOr<v1::ActionReply> Clear(const api::Caller& caller, const v1::SteerClearRequest& request);
  absl::StatusOr<v1::ActionReply> Lock(const api::Caller& caller, const v1::SteerLockRequest& request);

  // What the agent before us was asked to end, and what became due while there was none. read_flows: the book has none
  // yet; adopted: what they were about is still there.
  void Adopt(bool adopted, const std::function<void()>& read_flows);
  void EndDue();  // placements, locks and the mode; once a second

 private:
  struct Found {
    Mover* mover = nullptr;
    FlowKey key;
  };
  absl::StatusOr<Found> Find(const std::string& id) const;
  absl::StatusOr<SteerTarget> TargetOf(const v1::SteerSetRequest& request, const Found& flow) const;
  absl::Status Usable(const Found& flow, uint8_t slot) const;
  std::set<FlowKey> ByHand(bool locked_too) const;
  void EndPlacement(const FlowKey& flow);
  void EndLock(const FlowKey& flow);

  const std::vector<Mover*> movers_;
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  Deadlines& deadlines_;
  Modes& modes_;
  const Clock& monotonic_;
  Journal& journal_;
};

}  // namespace cw::agent
