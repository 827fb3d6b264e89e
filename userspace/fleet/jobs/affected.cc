// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/strip.h"
#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {

JobReach ReachOf(const JoinedJob& job, absl::Span<const HostWork> hosts) {
  JobReach reach{.name = job.name, .ports = {}, .nics = {}, .hosts = {}};
  for (const JoinedJob::Place& place : job.flows) {
    const HostWork::Flow& flow = hosts[place.host].flows[place.index];
    const FlowName& name = flow.sample->name;
    reach.nics.insert({name.local, name.remote});
    reach.hosts.insert(hosts[place.host].host);
    if (!name.peer.empty()) reach.hosts.insert(name.peer);
    if (flow.hops == nullptr) continue;
    reach.ports.insert(flow.hops->begin(), flow.hops->end());
    reach.ports.insert(name.remote);
  }
  for (const JoinedJob::Place& place : job.ranks) {
    const HostWork& work = hosts[place.host];
    if (!work.ranks[place.index].job->ended()) reach.hosts.insert(work.host);
  }
  return reach;
}

// A port has one address, so where a link ends says which one it is, and in which direction.
bool Crosses(const Finding& finding, const JobReach& reach, const Topology& topology) {
  absl::string_view what = finding.scope;
  if (absl::ConsumePrefix(&what, "host ")) return reach.hosts.contains(what);
  if (absl::ConsumePrefix(&what, "NIC ")) {
    if (const size_t of = what.rfind(" of "); of != absl::string_view::npos)  // by its name there
      return reach.hosts.contains(what.substr(of + 4));
    const absl::StatusOr<Addr> nic = Addr::Parse(std::string(what));
    return nic.ok() && reach.nics.contains(*nic);
  }
  const auto takes = [&](const Addr& port) { return reach.ports.contains(port); };
  if (absl::ConsumePrefix(&what, "switch ")) {
    return std::any_of(topology.switches.begin(), topology.switches.end(), [&](const Switch& s) {
      return s.name == what && std::any_of(s.addresses.begin(), s.addresses.end(), takes);
    });
  }
  return std::any_of(finding.links.begin(), finding.links.end(),
                     [&](const LinkId& link) { return takes(link.second); });
}

}  // namespace cw::fleet
