// SPDX-License-Identifier: Apache-2.0
//
// Flows that left a bad path go back when it has recovered: control/returns.h says when, a mover how.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/control/returns.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class Returns {
 public:
  // wanted: of one flow; otherwise it is forgotten that it is away. All of them outlive it.
  Returns(absl::Duration step, const PairTable& pairs, const probe::Mesh& mesh, const PeerNames& names, Mover& mover,
          EventSink& events, std::function<bool(uint32_t pair, const FlowKey&)> wanted)
      : rule_(absl::ToInt64Nanoseconds(step)),
        pairs_(pairs),
        mesh_(mesh),
        names_(names),
        mover_(mover),
        events_(events),
        wanted_(std::move(wanted)) {}

  void SetStep(absl::Duration step) { rule_.SetStep(absl::ToInt64Nanoseconds(step)); }
  void Left(const FlowKey& flow, uint32_t pair, control::ReturnPlace from, control::ReturnPlace to) {
    rule_.Left(flow, pair, from, to);
  }
  void Step(int64_t now_ns);

 private:
  bool IsUsable(uint32_t pair, control::ReturnPlace place) const;
  void Tell(const control::ReturnAction& action);

  control::Returns rule_;
  const PairTable& pairs_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  Mover& mover_;
  EventSink& events_;
  const std::function<bool(uint32_t pair, const FlowKey&)> wanted_;
};

}  // namespace cw::agent
