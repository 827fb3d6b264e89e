// SPDX-License-Identifier: Apache-2.0
//
// The pairs of NICs that are probed: made at the start, changed when the configuration is read again. The number of a
// pair that goes is free, and nothing knows of the pair, before another one gets it. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/peer_plan.h"
#include "userspace/config/config.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class PairKeeper {
 public:
  struct Asks {
    std::function<void(const PeerPlan& plan)> planned;  // before pairs come or go
    // The whole wanted set, for whoever probes it (Mesh::Configure).
    std::function<absl::StatusOr<probe::ConfigureResult>(const std::vector<probe::PairSpec>& specs)> configure;
    std::function<void(uint32_t pair)> forgotten;
  };

  // All of them outlive it.
  PairKeeper(PairTable& pairs, PeerNames& names, const NicTable& nics, const probe::Mesh& mesh, Totals& totals,
             Asks asks)
      : pairs_(pairs), names_(names), nics_(nics), mesh_(mesh), totals_(totals), asks_(std::move(asks)) {}

  // Whom this host's NICs probe by that configuration. Errors: PlanPeers'.
  absl::StatusOr<PeerPlan> Plan(const config::Config& config) const;
  absl::Status Take(PeerPlan plan);

 private:
  absl::Status RemoveBesides(const std::vector<probe::PairSpec>& wanted);
  void Add(uint32_t index);

  PairTable& pairs_;
  PeerNames& names_;
  const NicTable& nics_;
  const probe::Mesh& mesh_;
  Totals& totals_;
  const Asks asks_;
  bool whole_ = false;  // the last plan was taken to its end
};

}  // namespace cw::agent
