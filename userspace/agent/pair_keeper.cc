// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/pair_keeper.h"

#include <memory>

#include "absl/container/flat_hash_set.h"

namespace cw::agent {

absl::StatusOr<PeerPlan> PairKeeper::Plan(const config::Config& config) const {
  std::vector<ProbedNic> nics;
  for (const NicState& nic : nics_)
    nics.push_back({.address = nic.address, .ifindex = static_cast<int>(nic.ifindex), .probes = nic.no_probes.empty()});
  return PlanPeers(config, nics);
}

absl::Status PairKeeper::Take(PeerPlan plan) {
  if (whole_ && !pairs_.empty() && plan.names == names_.names && plan.rails == names_.rails) return absl::OkStatus();
  whole_ = false;
  names_.names = plan.names;
  names_.rails = plan.rails;
  asks_.planned(plan);
  if (absl::Status status = RemoveBesides(plan.specs); !status.ok()) return status;
  const absl::StatusOr<probe::ConfigureResult> configured = asks_.configure(plan.specs);
  if (!configured.ok()) return configured.status();
  for (const uint32_t index : mesh_.Pairs()) {
    if (PairState* pair = FindIn(pairs_, index); pair == nullptr) {
      Add(index);
    } else {
      pair->peer = mesh_.spec(index).peer;
    }
  }
  whole_ = true;
  return absl::OkStatus();
}

absl::Status PairKeeper::RemoveBesides(const std::vector<probe::PairSpec>& wanted) {
  absl::flat_hash_set<PairKey> keep;
  for (const probe::PairSpec& spec : wanted) keep.insert(spec.key());
  std::vector<probe::PairSpec> stay;
  for (const auto& [index, pair] : pairs_) {
    if (keep.contains(pair->key)) stay.push_back(mesh_.spec(index));
  }
  if (stay.size() == pairs_.size()) return absl::OkStatus();
  const absl::StatusOr<probe::ConfigureResult> configured = asks_.configure(stay);
  if (!configured.ok()) return configured.status();
  for (const uint32_t index : configured->removed) {
    asks_.forgotten(index);
    pairs_.erase(index);
  }
  return absl::OkStatus();
}

void PairKeeper::Add(uint32_t index) {
  const probe::PairSpec& spec = mesh_.spec(index);
  auto pair = std::make_unique<PairState>();
  pair->index = index;
  pair->key = spec.key();
  pair->ifindex = static_cast<uint32_t>(spec.local_ifindex);
  pair->peer = spec.peer;
  pair->delays = totals_.DelaysOf(*pair);
  pair->sums = totals_.FlowsOf(pair->key.local);
  pairs_[index] = std::move(pair);
}

}  // namespace cw::agent
