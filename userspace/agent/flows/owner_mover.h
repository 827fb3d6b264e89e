// SPDX-License-Identifier: Apache-2.0
//
// Connected queue pairs that the library in their process moves (libcwverbs), where no program of ours sees their
// packets, by the same choice of a path as when they connected. What is asked for and what came of it:
// rdma/move_book.h. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/move_book.h"
#include "userspace/rdma/placement.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class OwnerMover final : public Mover {
 public:
  struct Asks {
    May allowed;
    std::function<std::vector<uint32_t>(const std::vector<rdma::MoveOrder>& orders)> send;  // requests that were not
    std::function<std::optional<uint16_t>(uint32_t pair, uint16_t port)> fold;              // see UnseenFlows
    LeftBadPath left;
  };

  // All of them outlive it.
  OwnerMover(const PairTable& pairs, const FlowBook& flows, const rdma::QpRegistry& qps, const UnseenFlows& unseen,
             const probe::Mesh& mesh, const PeerNames& names, const Clock& monotonic, EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        qps_(qps),
        unseen_(unseen),
        mesh_(mesh),
        names_(names),
        monotonic_(monotonic),
        events_(events),
        asks_(std::move(asks)) {}

  void OnPathLost(const PathLost& lost) override;
  std::vector<control::ReturnFlow> Flows() const override;
  bool GoBack(const control::ReturnAction& action) override;
  std::optional<FlowKey> Find(const std::string& id) const override;
  absl::Status MayPlace(const FlowKey& flow, const v1::SteerSetRequest& request) const override;
  SteerTarget Native(const FlowKey& flow) const override;
  uint8_t SlotOfPort(const FlowKey& flow, uint16_t port) const override;
  absl::StatusOr<Placed> PlaceByHand(const FlowKey& flow, const SteerTarget& to, bool force) override;
  std::vector<FlowKey> ByHand(bool locked_too) const override;
  std::optional<std::string> GiveBack(const FlowKey& flow, const std::optional<Deadlines::Place>& before) override;
  absl::StatusOr<uint8_t> SetLocks(const FlowKey& flow, uint8_t locks) override;
  Leaving LeaveDrained(const FlowKey& flow, const DrainWay& way, DrainEntry::Moved& moved) override;
  bool ReturnDrained(const FlowKey& flow, const DrainEntry::Moved& moved) override;
  // Of its own; nullopt: nobody speaks for it, or its packets are seen.
  std::optional<rdma::QpInfo> Owned(const FlowKey& flow) const;

  // sends: it did since its owner told last; its paths are probed as those of flows that are seen.
  void OnOwner(const rdma::QpInfo& qp, bool sends);
  void OnOwnerGone(const rdma::QpInfo& qp);
  void OnMoved(const rdma::QpInfo& qp, const rdma::MoveResult& result);
  // What could not be asked for then, or died while it was under way, or was on a port that never answered. Once a
  // second.
  void Step();

  std::string WhyNot(const rdma::QpInfo& qp) const;  // it is not moved; "": it may be
  uint8_t SlotOf(const rdma::QpInfo& qp, uint16_t port) const { return unseen_.SlotOf(rdma::SentFlow(qp), port); }
  // Live paths but for the slots to avoid, with the queue pairs of the same two NICs that are there: by their packets
  // where those are seen, by the port that was announced otherwise.
  std::vector<rdma::PathLoad> Loads(const PairState& pair, const rdma::QpInfo& asking, uint16_t avoid) const;
  // Each to that of the paths which has the fewest then. act: whether it may; otherwise it is only told.
  void MoveTo(const PairState& pair, const std::vector<rdma::QpInfo>& leaving, std::vector<rdma::PathLoad> loads,
              rdma::MoveWhy why, absl::FunctionRef<bool(const rdma::QpInfo&)> act);
  // qps: those that the orders are about, and others.
  void Send(const std::vector<rdma::QpInfo>& qps, const std::vector<rdma::MoveOrder>& orders);
  rdma::MoveBook& book() { return book_; }
  const rdma::MoveBook& book() const { return book_; }

 private:
  bool Acts(const PairState& pair, const rdma::QpInfo& qp, Capability by) const;
  bool MayReturn(const rdma::QpInfo& qp, uint16_t port) const;
  std::vector<rdma::QpInfo> OwnedOn(const PairState& pair, uint8_t slot) const;
  void MoveOff(const PairState& pair, uint8_t slot, Capability by, bool again);
  control::ReturnPlace PlaceOf(const rdma::QpInfo& qp, uint16_t port) const;
  void Tell(const rdma::QpInfo& qp, const rdma::MoveBook::Asked& asked, int error, bool dry);

  const PairTable& pairs_;
  const FlowBook& flows_;
  const rdma::QpRegistry& qps_;
  const UnseenFlows& unseen_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  const Clock& monotonic_;
  EventSink& events_;
  const Asks asks_;

  rdma::MoveBook book_;
};

}  // namespace cw::agent
