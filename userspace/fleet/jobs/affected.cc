// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "absl/strings/strip.h"
#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {
namespace {

// A port has one address, so where a link ends says which one it is, and in which direction.
bool EndsAt(const FlowName& flow, const std::vector<Addr>* hops, const std::set<Addr>& ports) {
  if (hops == nullptr) return false;
  return ports.contains(flow.remote) ||
         std::any_of(hops->begin(), hops->end(), [&](const Addr& hop) { return ports.contains(hop); });
}

}  // namespace

bool Crosses(const Finding& finding, const FlowName& flow, const std::vector<Addr>* hops, const Topology& topology) {
  absl::string_view what = finding.scope;
  if (absl::ConsumePrefix(&what, "NIC ")) return flow.local.ToString() == what || flow.remote.ToString() == what;
  if (absl::ConsumePrefix(&what, "host ")) return flow.peer == what;
  std::set<Addr> ports;
  for (const LinkId& link : finding.links) ports.insert(link.second);
  if (absl::ConsumePrefix(&what, "switch ")) {
    for (const Switch& s : topology.switches) {
      if (s.name == what) ports.insert(s.addresses.begin(), s.addresses.end());
    }
  }
  return EndsAt(flow, hops, ports);
}

std::vector<std::string> JobsCrossing(const Finding& finding, absl::Span<const JoinedJob> jobs,
                                      absl::Span<const HostWork> hosts, const Topology& topology) {
  std::set<std::string> names;
  for (const JoinedJob& job : jobs) {
    const bool on_it = std::any_of(job.flows.begin(), job.flows.end(), [&](const JoinedJob::Place& place) {
      const HostWork& work = hosts[place.host];
      const HostWork::Flow& flow = work.flows[place.index];
      return finding.scope == "host " + work.host || Crosses(finding, flow.sample->name, flow.hops, topology);
    });
    const bool there = std::any_of(job.ranks.begin(), job.ranks.end(), [&](const JoinedJob::Place& place) {
      return finding.scope == "host " + hosts[place.host].host && !hosts[place.host].ranks[place.index].job->ended();
    });
    if (on_it || there) names.insert(job.name);
  }
  return {names.begin(), names.end()};
}

}  // namespace cw::fleet
