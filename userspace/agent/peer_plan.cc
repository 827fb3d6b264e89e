// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/peer_plan.h"

namespace cw::agent {

absl::StatusOr<PeerPlan> PlanPeers(const config::Config& config, const std::vector<ProbedNic>& nics) {
  absl::StatusOr<std::vector<config::PeerConfig>> peers = config::LoadPeers(config);
  if (!peers.ok()) return peers.status();
  std::vector<std::string> own;
  for (const ProbedNic& nic : nics) own.push_back(nic.address.ToString());
  PeerPlan plan{.own_name = config::OwnName(*peers, own)};
  for (const config::PeerConfig& peer : config::PeersExceptSelf(*peers, own)) {  // one list serves every host
    plan.peers.push_back(peer.name);
    for (size_t rail = 0; rail < peer.addresses.size(); ++rail) {
      absl::StatusOr<Addr> remote = Addr::Parse(peer.addresses[rail]);
      if (!remote.ok()) return remote.status();
      plan.names[*remote] = peer.name;
      plan.rails[*remote] = rail;
      for (const ProbedNic& nic : nics) {
        if (nic.address.is_v4() != remote->is_v4()) continue;  // no packet goes from one family to the other
        if (!nic.probes) continue;
        plan.specs.push_back({.local = nic.address,
                              .local_ifindex = nic.ifindex,
                              .remote = *remote,
                              .peer = peer.name,
                              .dscp = static_cast<uint8_t>(config.probe.dscp.value_or(0))});
      }
    }
  }
  return plan;
}

}  // namespace cw::agent
