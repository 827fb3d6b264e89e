// SPDX-License-Identifier: Apache-2.0
//
// Why a flow is where it is: who put it there, what holds it, what the rule of balance makes of it, and the path that
// it takes. Writes nothing. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/scopes.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/control/explain.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class WhyView {
 public:
  struct Asks {
    std::function<Allowed()> allowed;
    std::function<const probe::Discovery*(uint32_t pair)> discovery;
    std::function<std::string()> balance_held;  // why nothing moves for balance although the mode allows it; ""
    std::function<std::vector<Scopes::Hold>(const PairState& pair, const FlowKey* flow)> scopes;
    std::function<void(const FlowKey& flow, v1::WhyReply& reply)> collective;  // fills in the one it works for
    std::function<control::Explanation(const FlowKey& flow)> rule;
  };

  // All of them outlive it.
  WhyView(const FlowBook& flows, const PairTable& pairs, const rdma::QpRegistry& qps, const OwnerMover& owners,
          const probe::Mesh& mesh, const Deadlines& deadlines, const FlowsView& flows_view, const PathsView& paths_view,
          const Clock& monotonic, Asks asks)
      : flows_(flows),
        pairs_(pairs),
        qps_(qps),
        owners_(owners),
        mesh_(mesh),
        deadlines_(deadlines),
        flows_view_(flows_view),
        paths_view_(paths_view),
        monotonic_(monotonic),
        asks_(std::move(asks)) {}

  // what: a flow or a path, as `cwctl why` takes it. kNotFound: there is none; kInvalidArgument: it says neither, or
  // fits several. Without events.
  absl::StatusOr<v1::WhyReply> About(const std::string& what) const;

 private:
  absl::StatusOr<v1::WhyReply> OfFlow(const std::string& id) const;
  std::optional<v1::WhyReply> OfOwned(const std::string& id) const;  // whose packets no program sees
  absl::StatusOr<v1::WhyReply> OfPath(uint32_t pair, uint32_t slot) const;
  void AddFlowHolds(const FlowKey& key, const FlowEntry& flow, v1::WhyReply& reply) const;
  void AddPairHolds(const PairState& pair, const FlowKey* flow, v1::WhyReply& reply) const;
  void AddPathHolds(const PairState& pair, uint8_t slot, v1::WhyReply& reply) const;
  v1::WhyPath PathOf(PairState& pair, uint8_t slot) const;

  const FlowBook& flows_;
  const PairTable& pairs_;
  const rdma::QpRegistry& qps_;
  const OwnerMover& owners_;
  const probe::Mesh& mesh_;
  const Deadlines& deadlines_;
  const FlowsView& flows_view_;
  const PathsView& paths_view_;
  const Clock& monotonic_;
  const Asks asks_;
};

}  // namespace cw::agent
