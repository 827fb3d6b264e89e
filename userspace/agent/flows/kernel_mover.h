// SPDX-License-Identifier: Apache-2.0
//
// Flows whose packets the kernel's program sees, put on other paths by it. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "userspace/agent/event_sink.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/pair_state.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

// A native port that is probed for itself and never answers, while other paths do. The kernel judges paths that were
// alive once.
bool IsMute(const PairState& pair, const probe::Mesh& mesh, uint8_t slot);

class KernelMover final : public Mover {
 public:
  struct Asks {
    std::function<bool(uint32_t pair)> in_motion;  // ports are dealt out anew
    LeftBadPath left;
  };

  // All of them outlive it.
  KernelMover(const PairTable& pairs, const FlowBook& flows, FlowRecords& records, const probe::Mesh& mesh,
              EventSink& events, Asks asks)
      : pairs_(pairs), flows_(flows), records_(records), mesh_(mesh), events_(events), asks_(std::move(asks)) {}

  void OnPathLost(const PathLost& lost) override;
  std::vector<control::ReturnFlow> Flows() const override;
  bool GoBack(const control::ReturnAction& action) override;
  // Each flow of the path goes to the usable one that has the fewest then. At once: what is in flight is lost in part
  // anyway. steered_to: only those that were steered to this port, which is no path any more, so nobody returns to it.
  // Returns how many go.
  int Leave(const PairState& pair, uint8_t slot, std::optional<uint16_t> steered_to = std::nullopt);
  // While ports are dealt out anew none is believed to take another's path, and slots may not suffice for all: no
  // verdict would move flows on the rest. Once per window.
  void LeaveUnwatchedPorts();
  void LeaveMutePorts();

 private:
  const PairTable& pairs_;
  const FlowBook& flows_;
  FlowRecords& records_;
  const probe::Mesh& mesh_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
