// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_mesh.h"

#include "sync/mesh.h"
#include "sync/neighbours.h"

namespace cw::agent {
namespace {

constexpr int64_t kFreshNs = 5'000'000'000;

}  // namespace

void LinkBook::SetNames(const std::vector<std::string>& names) {
  names_.clear();
  for (const std::string& name : names) names_[sync::HostId(name)] = name;
  std::erase_if(told_, [this](const auto& told) { return names_.count(sync::HostId(told.first)) == 0; });
}

void LinkBook::OnReport(const std::string& peer, std::vector<LinkReport> links, int64_t now_ns) {
  told_[peer] = {std::move(links), now_ns};
}

MeshAudit LinkBook::Audit(absl::Span<const LinkReport> own, int64_t now_ns) const {
  std::map<uint64_t, uint32_t> nodes;
  std::vector<std::string> names;
  const auto node = [&](uint64_t id) {
    const auto [place, is_new] = nodes.emplace(id, static_cast<uint32_t>(names.size()));
    if (is_new) {
      const auto name = names_.find(id);
      names.push_back(name == names_.end() ? sync::HostLabel(id) : name->second);
    }
    return place->second;
  };
  MeshAudit audit;
  std::vector<sync::MeshLink> links;
  const auto add = [&](const std::string& from, absl::Span<const LinkReport> reports) {
    const uint64_t from_id = sync::HostId(from);
    for (const LinkReport& report : reports) {
      if (report.peer_id == from_id) continue;
      const uint32_t a = node(from_id), b = node(report.peer_id);
      links.push_back({.a = a,
                       .b = b,
                       .offset_ns = static_cast<double>(report.disagreement_ns),
                       .error_ns = static_cast<double>(report.error_ns)});
      audit.links.push_back(
          {.from = from, .to = names[b], .disagreement_ns = report.disagreement_ns, .error_ns = report.error_ns});
    }
  };
  add(host_, own);
  for (const auto& [peer, told] : told_) {
    if (now_ns - told.at_ns < kFreshNs) add(peer, told.links);
  }
  const sync::MeshResult result = sync::SolveMesh(names.size(), links);
  for (size_t i = 0; i < links.size(); ++i) {
    audit.links[i].residual_ns = result.links[i].residual_ns;
    audit.links[i].deviations = result.links[i].deviations;
    audit.links[i].suspect = result.links[i].suspect;
  }
  for (const uint32_t suspect : result.suspect_nodes) audit.suspect_hosts.push_back(names[suspect]);
  return audit;
}

}  // namespace cw::agent
