// SPDX-License-Identifier: Apache-2.0
//
// Flows whose packets the kernel's program sees, put on other paths by it. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/control/drain.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

// A native port that is probed for itself and never answers, while other paths do. The kernel judges paths that were
// alive once.
bool IsMute(const PairState& pair, const probe::Mesh& mesh, uint8_t slot);

bool IsDead(const probe::Mesh& mesh, uint32_t pair, uint8_t slot);

// Where flows may go that leave what is drained, without the flows that are there. unknown: slots that may cross it.
std::vector<control::DrainSlot> DrainSlotsOf(const PairState& pair, const probe::Mesh& mesh, uint16_t unknown);

class KernelMover final : public Mover {
 public:
  struct Asks {
    std::function<bool(uint32_t pair)> in_motion;  // ports are dealt out anew
    LeftBadPath left;
    May allowed;
  };

  // All of them outlive it.
  KernelMover(const PairTable& pairs, FlowBook& flows, FlowRecords& records, const probe::Mesh& mesh,
              const PeerNames& names, EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        records_(records),
        mesh_(mesh),
        names_(names),
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
  // Each flow of the path goes to the usable one that has the fewest then. At once: what is in flight is lost in part
  // anyway. steered_to: only those that were steered to this port, which is no path any more, so nobody returns to it.
  // by: those stay for which it does not act. Returns how many go.
  int Leave(const PairState& pair, uint8_t slot, Capability by, std::optional<uint16_t> steered_to = std::nullopt);
  // While ports are dealt out anew none is believed to take another's path, and slots may not suffice for all: no
  // verdict would move flows on the rest. Once per window.
  void LeaveUnwatchedPorts();
  void LeaveMutePorts();
  // A wish that came true by another way is taken back, so that it does not move the flow later, nor bar balance from
  // it. Once a second.
  void DropMetWishes();

 private:
  absl::Status Put(const FlowKey& flow, uint8_t slot, uint16_t port, bool force);
  void Reread(const FlowKey& flow);
  std::vector<control::DrainSlot> DrainSlots(const PairState& pair, uint16_t unknown) const;

  const PairTable& pairs_;
  FlowBook& flows_;
  FlowRecords& records_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
