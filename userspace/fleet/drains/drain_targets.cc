// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/drain_targets.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/model/addr.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr size_t kMostLeftOut = 16;  // that are named

template <typename List>
bool Has(const List& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

DrainTargets OfSwitch(const pb::FleetSwitch& s, const DrainFabric& fabric) {
  std::set<std::string> addresses(s.addresses().begin(), s.addresses().end());
  for (const std::vector<std::string>& joined : fabric.switches) {
    const auto here = [&](const std::string& address) { return Has(s.addresses(), address); };
    if (std::any_of(joined.begin(), joined.end(), here)) addresses.insert(joined.begin(), joined.end());
  }
  return {.scope = DrainScope::kSwitch, .name = s.name(), .addresses = {addresses.begin(), addresses.end()}};
}

// Between two switches alone traces show a third one as two, one for each direction: half of it is not safe to pull.
absl::Status CheckWhole(const pb::FleetSwitch& s, const pb::FleetTopologyReply& topology) {
  std::set<std::string> before, after;
  for (const pb::FleetLink& link : topology.links()) {
    if (link.to() == s.name()) before.insert(link.from());
    if (link.from() == s.name()) after.insert(link.to());
  }
  if (s.named() || before.empty() || after.empty()) return absl::OkStatus();
  const bool back = std::any_of(before.begin(), before.end(), [&](const auto& other) { return after.contains(other); });
  if (back) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      s.name(), " may be half of a switch: packets come to it from ", absl::StrJoin(before, ", "), " and go to ",
      absl::StrJoin(after, ", "),
      " alone. Name the switch with all its ports in fabric_file of cwfleetd.toml, or drain its links one by one"));
}

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

// A finding's scope is a name, too: "link 10.0.0.1>10.1.0.2" ends at 10.1.0.2, and "cable leaf0 = spine1" has a link
// from the one to the other.
std::string PortOf(absl::string_view name, const pb::FleetTopologyReply& topology) {
  absl::ConsumePrefix(&name, "link ");
  if (absl::ConsumePrefix(&name, "cable ")) {
    const std::vector<std::string> ends = absl::StrSplit(name, " = ");
    for (const pb::FleetLink& link : topology.links()) {
      if (ends.size() == 2 && link.from() == ends[0] && link.to() == ends[1]) return link.port();
    }
  }
  const std::vector<std::string> ends = absl::StrSplit(name, '>');
  if (ends.size() != 2) return std::string(name);
  for (const pb::FleetLink& link : topology.links()) {  // of switches by name
    if (link.from() == ends[0] && link.to() == ends[1]) return link.port();
  }
  return ends[1];
}

// Whose an address is besides this host's, which alone says that it has it: as words; "" = nobody's.
std::string WhyNotOf(const HostNics& host, const std::string& address, const pb::FleetTopologyReply& topology,
                     const std::vector<HostNics>& hosts) {
  const absl::StatusOr<Addr> parsed = Addr::Parse(address);
  if (!parsed.ok() || parsed->is_zero() || (parsed->is_v4() && parsed->v4() == 0)) return "no address of a NIC";
  for (const pb::FleetSwitch& s : topology.switches()) {
    if (Has(s.addresses(), address)) return absl::StrCat("of switch ", s.name());
  }
  for (const HostNics& other : hosts) {
    const bool has =
        std::any_of(other.nics.begin(), other.nics.end(), [&](const auto& n) { return n.second == address; });
    if (has && other.host != host.host) return absl::StrCat("of ", other.host, ", too");
  }
  return "";
}

// What it says of itself must not keep the fleet off others.
absl::StatusOr<DrainTargets> OfHost(const HostNics& host, const pb::FleetTopologyReply& topology,
                                    const std::vector<HostNics>& hosts) {
  DrainTargets out{.scope = DrainScope::kHost, .name = host.host};
  std::vector<std::string> left_out;
  for (const auto& [nic, address] : host.nics) {
    if (!Has(out.nics, nic)) out.nics.push_back(nic);
    const std::string why = WhyNotOf(host, address, topology, hosts);
    if (why.empty()) {
      out.addresses.push_back(address);
    } else if (left_out.size() < kMostLeftOut) {
      left_out.push_back(absl::StrCat(address, " of ", nic, " (", why, ")"));
    }
  }
  if (!left_out.empty()) out.note = absl::StrCat("not kept free: ", absl::StrJoin(left_out, ", "));
  if (!out.addresses.empty()) return out;
  if (left_out.empty())
    return absl::NotFoundError(absl::StrCat("no NIC of ", host.host, " is known: it was not connected of late"));
  return absl::FailedPreconditionError(
      absl::StrCat("no address is ", host.host, "'s alone; ", out.note,
                   "; see whose they are: cwctl nics on the host, cwctl fleet topology"));
}

}  // namespace

absl::StatusOr<DrainTargets> FindTargets(const std::string& kind, const std::string& given, const DrainFabric& fabric) {
  const pb::FleetTopologyReply& topology = fabric.topology;
  const std::string name = kind == "link" ? PortOf(given, topology) : std::string(absl::StripPrefix(given, kind + " "));
  if (kind == "switch") {
    for (const pb::FleetSwitch& s : topology.switches()) {
      if (s.name() != name && !Has(s.addresses(), name)) continue;
      if (absl::Status whole = CheckWhole(s, topology); !whole.ok()) return whole;
      return OfSwitch(s, fabric);
    }
    return absl::NotFoundError(absl::StrCat("no switch ", name, "; see cwctl fleet topology"));
  }
  if (kind == "link") {
    const auto ends_there = [&](const pb::FleetLink& link) { return link.port() == name; };
    const auto found = std::find_if(topology.links().begin(), topology.links().end(), ends_there);
    if (std::count_if(topology.links().begin(), topology.links().end(), ends_there) > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat(found->to(), " answers traces with one address of its own (", name,
                       "), so one of its links cannot be kept free alone; drain the switch: cwctl fleet drain switch ",
                       found->to()));
    }
    if (found != topology.links().end()) return OfLink(*found, topology);
    return absl::NotFoundError(
        absl::StrCat("no link ends at ", name, "; name the port where it ends: PORT in cwctl fleet links"));
  }
  if (kind != "host") return absl::InvalidArgumentError("a link, a switch or a host can be drained");
  for (const HostNics& host : fabric.hosts) {
    if (host.host == name) return OfHost(host, topology, fabric.hosts);
  }
  return absl::NotFoundError(absl::StrCat("the fleet service knows no host ", name, "; see cwctl fleet hosts"));
}

DrainTargets MissingTargets(const pb::FleetDrain& drain, const DrainFabric& fabric) {
  DrainTargets now{.name = drain.name()};
  if (drain.kind() == "switch") {
    now.scope = DrainScope::kSwitch;
    std::set<std::string> addresses;
    for (const pb::FleetSwitch& s : fabric.topology.switches()) {
      const auto covered = [&](const std::string& address) { return Has(drain.addresses(), address); };
      if (!std::any_of(s.addresses().begin(), s.addresses().end(), covered)) continue;
      const std::vector<std::string> all = OfSwitch(s, fabric).addresses;
      addresses.insert(all.begin(), all.end());
    }
    now.addresses.assign(addresses.begin(), addresses.end());
  } else if (drain.kind() == "host") {
    if (absl::StatusOr<DrainTargets> host = FindTargets("host", drain.name(), fabric); host.ok())
      now = *std::move(host);
  }
  std::erase_if(now.addresses, [&](const std::string& address) { return Has(drain.addresses(), address); });
  std::erase_if(now.nics, [&](const std::string& nic) { return Has(drain.nics(), nic); });
  return now;
}

}  // namespace cw::fleet
