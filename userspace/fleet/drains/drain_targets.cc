// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/drain_targets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

DrainTargets OfLink(const pb::FleetLink& link, const pb::FleetTopologyReply& topology) {
  DrainTargets out{.scope = DrainScope::kLink,
                   .name = absl::StrCat(link.from(), " > ", link.to(), " at ", link.port()),
                   .addresses = {link.port()}};
  std::vector<const pb::FleetLink*> back;
  int beside = 0;
  for (const pb::FleetLink& other : topology.links()) {
    beside += other.from() == link.from() && other.to() == link.to();
    if (other.from() == link.to() && other.to() == link.from()) back.push_back(&other);
  }
  if (back.size() == 1 && beside == 1) {
    out.addresses.push_back(back[0]->port());
  } else if (!back.empty()) {
    out.note = absl::StrCat("this direction alone: which of ", back.size(), " links from ", link.to(), " to ",
                            link.from(), " is its other one is not known; drain that by its own port, too");
  }
  return out;
}

}  // namespace

absl::StatusOr<DrainTargets> FindTargets(const std::string& kind, const std::string& name,
                                         const pb::FleetTopologyReply& topology, const std::vector<HostNics>& hosts) {
  if (kind == "switch") {
    for (const pb::FleetSwitch& s : topology.switches()) {
      const bool here = std::find(s.addresses().begin(), s.addresses().end(), name) != s.addresses().end();
      if (s.name() != name && !here) continue;
      return DrainTargets{
          .scope = DrainScope::kSwitch, .name = s.name(), .addresses = {s.addresses().begin(), s.addresses().end()}};
    }
    return absl::NotFoundError(absl::StrCat("no switch ", name, "; see cwctl fleet topology"));
  }
  if (kind == "link") {
    for (const pb::FleetLink& link : topology.links()) {
      if (link.port() == name) return OfLink(link, topology);
    }
    return absl::NotFoundError(
        absl::StrCat("no link ends at ", name, "; name the port where it ends: PORT in cwctl fleet links"));
  }
  if (kind != "host") return absl::InvalidArgumentError("a link, a switch or a host can be drained");
  for (const HostNics& host : hosts) {
    if (host.host != name) continue;
    DrainTargets out{.scope = DrainScope::kHost, .name = name};
    for (const auto& [nic, address] : host.nics) {
      out.nics.push_back(nic);
      out.addresses.push_back(address);
    }
    if (out.addresses.empty())
      return absl::NotFoundError(absl::StrCat("no NIC of ", name, " is known: it was not connected of late"));
    return out;
  }
  return absl::NotFoundError(absl::StrCat("the fleet service knows no host ", name, "; see cwctl fleet hosts"));
}

}  // namespace cw::fleet
