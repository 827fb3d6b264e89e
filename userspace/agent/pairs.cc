// SPDX-License-Identifier: Apache-2.0
// The pairs of NICs that are probed: made at the start, and changed when the configuration is reloaded.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/nics/verbs_probes.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/peer_plan.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {

std::vector<ProbedNic> Agent::ProbedNics() const {
  std::vector<ProbedNic> nics;
  for (const Nic& nic : nics_)
    nics.push_back({.address = nic.address, .ifindex = static_cast<int>(nic.ifindex), .probes = nic.no_probes.empty()});
  return nics;
}

absl::Status Agent::ConfigurePairs() {
  absl::StatusOr<PeerPlan> plan = PlanPeers(options_.config, ProbedNics());
  if (!plan.ok()) return plan.status();
  TakeName(plan->own_name);
  OpenClocks();
  return TakePeers(*std::move(plan));
}

// Who chooses a carrier and who is whose neighbour both ends compute from names, so ours is the one that others have.
void Agent::TakeName(const std::string& in_peer_files) {
  const std::string& configured = options_.config.host_name;
  if (!in_peer_files.empty()) {
    if (!configured.empty() && configured != in_peer_files) {
      spdlog::warn("host_name is {}, but the [[peer]] tables call this host {}, and that holds: make them agree",
                   configured, in_peer_files);
    }
    vitals_.host_name = in_peer_files;
  } else if (options_.config.steering.nic_failover && configured.empty()) {
    spdlog::warn(
        "no [[peer]] table has an address of this host, so it goes by the kernel's name {}: where peers call "
        "it otherwise no NIC is carried; give all hosts the same tables, or set host_name to that name",
        vitals_.host_name);
  }
}

// In two steps: the number of a pair that goes is free, and nothing knows of the pair, before another one gets it.
absl::Status Agent::TakePeers(PeerPlan plan) {
  if (!pairs_.empty() && plan.names == peer_names_.names && plan.rails == peer_names_.rails) return absl::OkStatus();
  peer_names_.names = std::move(plan.names);
  peer_names_.rails = std::move(plan.rails);
  clocks_->SetPeers(plan.peers, static_cast<size_t>(options_.config.probe.clock_neighbours));
  if (probe_verbs::VerbsHost* host = verbs_->host(); host != nullptr) {
    std::vector<PairKey> keys;
    for (const probe::PairSpec& spec : plan.specs) keys.push_back(spec.key());
    host->SetPairs(keys);
  }
  if (absl::Status status = RemovePeersBesides(plan.specs); !status.ok()) return status;
  absl::StatusOr<probe::ConfigureResult> configured = engine_->Configure(plan.specs);
  if (!configured.ok()) return configured.status();
  for (const uint32_t index : engine_->mesh().Pairs()) {
    if (PairState* pair = FindPair(index); pair == nullptr) {
      AddPair(index);
    } else {
      pair->peer = engine_->mesh().spec(index).peer;
    }
  }
  return absl::OkStatus();
}

absl::Status Agent::RemovePeersBesides(const std::vector<probe::PairSpec>& wanted) {
  absl::flat_hash_set<PairKey> keep;
  for (const probe::PairSpec& spec : wanted) keep.insert(spec.key());
  std::vector<probe::PairSpec> stay;
  for (const auto& [index, pair] : pairs_) {
    if (keep.contains(pair->key)) stay.push_back(engine_->mesh().spec(index));
  }
  if (stay.size() == pairs_.size()) return absl::OkStatus();
  absl::StatusOr<probe::ConfigureResult> configured = engine_->Configure(stay);
  if (!configured.ok()) return configured.status();
  for (const uint32_t index : configured->removed) ForgetPair(index);
  return absl::OkStatus();
}

void Agent::ForgetPair(uint32_t index) {
  flow_ends_->ForgetPair(index);
  causes_->Forget(index);
  nic_failover_->Forget(index);
  unseen_->Forget(index);
  tails_->Forget(index);
  pairs_.erase(index);
}

void Agent::AddPair(uint32_t index) {
  const probe::PairSpec& spec = engine_->mesh().spec(index);
  auto pair = std::make_unique<PairState>();
  pair->index = index;
  pair->key = spec.key();
  pair->ifindex = static_cast<uint32_t>(spec.local_ifindex);
  pair->peer = spec.peer;
  pair->delays = totals_->DelaysOf(*pair);
  pair->sums = totals_->FlowsOf(pair->key.local);
  pairs_[index] = std::move(pair);
}

void Agent::ScheduleTick() {
  const int64_t now_ns = NowNs();
  const int64_t next_ns = engine_->NextTickNs(now_ns);
  if (next_ns == INT64_MAX || next_ns >= engine_tick_ns_) return;
  engine_tick_ns_ = next_ns;
  loop_->After(absl::Nanoseconds(std::max<int64_t>(next_ns - now_ns, 0)), [this, next_ns] {
    if (engine_tick_ns_ != next_ns) return;  // an earlier one was scheduled since, and took over
    engine_tick_ns_ = INT64_MAX;
    engine_->Tick(NowNs());
    ScheduleTick();
  });
}

}  // namespace cw::agent
