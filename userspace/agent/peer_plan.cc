// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/peer_plan.h"

#include "spdlog/spdlog.h"

namespace cw::agent {

absl::StatusOr<PeerPlan> PlanPeers(const config::Config& config, const std::vector<ProbedNic>& nics) {
  std::vector<std::string> skipped;
  absl::StatusOr<std::vector<config::PeerConfig>> peers = config::LoadPeers(config, &skipped);
  for (const std::string& line : skipped) spdlog::warn("{}", line);
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

std::string HostNameOf(const config::Config& config, const std::string& in_tables, const std::string& of_kernel) {
  const std::string& configured = config.host_name;
  if (!in_tables.empty()) {
    if (!configured.empty() && configured != in_tables) {
      spdlog::warn("host_name is {}, but the [[peer]] tables call this host {}, and that holds: make them agree",
                   configured, in_tables);
    }
    return in_tables;
  }
  if (!configured.empty()) return configured;
  if (config.steering.nic_failover) {
    spdlog::warn(
        "no [[peer]] table has an address of this host, so it goes by the kernel's name {}: where peers call "
        "it otherwise no NIC is carried; give all hosts the same tables, or set host_name to that name",
        of_kernel);
  }
  return of_kernel;
}

}  // namespace cw::agent
