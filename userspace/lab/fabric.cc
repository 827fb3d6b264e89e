// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric.h"

#include <arpa/inet.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/lab/fabric_build.h"
#include "userspace/lab/fabric_impl.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr uint16_t kRocePort = 4791;

// Ok when the name is free, be it after removing what a crash left.
absl::Status MakeRoom(const std::string& lab) {
  absl::StatusOr<FabricState> old = LoadState(lab);
  if (old.ok() && old->owner && IsAlive(*old->owner)) {
    return absl::AlreadyExistsError(absl::StrCat("lab ", lab, " belongs to process ", old->owner->pid,
                                                 ": wait for its end or give this one another name (--lab NAME)"));
  }
  if (old.ok() && old->complete && !old->owner && SwitchMaps::Open(old->maps).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("lab ", lab, " is up already: end it (cwlab down --lab ", lab,
                                                 ") or give this one another name (--lab NAME)"));
  }
  return RemoveLab(lab);
}

std::string Dotted(uint32_t network_order) {
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &network_order, text, sizeof(text));
}

}  // namespace

// ---- What the object knows ----

absl::Status Fabric::Impl::OpenMapsAndRoutes() {
  absl::StatusOr<std::unique_ptr<SwitchMaps>> opened = SwitchMaps::Open(state.maps);
  if (!opened.ok()) return opened.status();
  maps = *std::move(opened);
  for (int l = 0; l < spec().leaves; ++l) {
    absl::StatusOr<std::unique_ptr<RouteQuery>> query = RouteQuery::Open(NetnsPath(LeafName(spec().lab, l)));
    if (!query.ok()) return query.status();
    leaf_routes.push_back(*std::move(query));
  }
  return absl::OkStatus();
}

absl::Status Fabric::Impl::Check(const LinkDirection& link) const {
  const int ports = spec().leaves * spec().hosts_per_leaf + static_cast<int>(state.taps.size());
  const bool found = link.tier == LinkDirection::Tier::kSpine
                         ? link.leaf >= 0 && link.leaf < spec().leaves && link.spine >= 0 && link.spine < spec().spines
                         : link.port >= 0 && link.port < ports;
  return found ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("lab ", spec().lab, " has no link ", link.Name()));
}

absl::StatusOr<int> Fabric::Impl::PortOf(const std::string& address) const {
  for (int h = 0; h < spec().leaves * spec().hosts_per_leaf; ++h) {
    const std::string v4 = HostAddress(spec(), h);
    if (address == v4 || (spec().ipv6 && address == Address6(v4))) return h;
  }
  for (const TapPort& tap : state.taps) {
    if (tap.address == address || (spec().ipv6 && address == Address6(tap.address))) return tap.port;
  }
  return absl::NotFoundError(absl::StrCat("lab ", spec().lab, " has no host ", address));
}

int Fabric::Impl::LeafOfPort(int port) const {
  const int hosts = spec().leaves * spec().hosts_per_leaf;
  return port < hosts ? port / spec().hosts_per_leaf : state.taps.at(port - hosts).leaf;
}

SwitchPort Fabric::Impl::Receiver(const LinkDirection& link) const {
  const int hosts = spec().leaves * spec().hosts_per_leaf;
  if (link.tier == LinkDirection::Tier::kSpine || link.port < hosts) return ReceivingPort(spec(), link);
  const TapPort& tap = state.taps.at(link.port - hosts);
  return {LeafName(spec().lab, tap.leaf), tap.device};  // both ways: the machine's end is out of our reach
}

SwitchPort Fabric::Impl::Sender(const LinkDirection& link) const {
  const int hosts = spec().leaves * spec().hosts_per_leaf;
  if (link.tier == LinkDirection::Tier::kSpine || link.port < hosts) return SendingPort(spec(), link);
  return Receiver(link);
}

// ---- Up, Attach, Down ----

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Up(const FabricSpec& spec) {
  if (absl::Status status = Validate(spec); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<LabLock>> lock = LabLock::Take(spec.lab);
  if (!lock.ok()) return lock.status();
  if (absl::Status status = MakeRoom(spec.lab); !status.ok()) return status;

  auto impl = std::make_unique<Impl>();
  impl->state.spec = spec;
  impl->state.owner = SelfId();
  // On disk before anything is made: after a crash the next Up or Down knows that nobody minds the lab.
  absl::Status status = SaveState(impl->state);
  if (status.ok()) status = BuildLab(impl->state);
  if (status.ok()) status = impl->OpenMapsAndRoutes();
  if (status.ok()) {
    for (int l = 0; l < spec.leaves; ++l) {
      for (int s = 0; s < spec.spines; ++s) {
        impl->ConfigureLink(LinkDirection::LeafToSpine(l, s), spec.link_mbps);
        impl->ConfigureLink(LinkDirection::SpineToLeaf(s, l), spec.link_mbps);
      }
    }
    impl->state.complete = true;
    status = SaveState(impl->state);
  }
  if (!status.ok()) {
    RemoveLab(spec.lab).IgnoreError();  // the first error is the one to tell
    return status;
  }
  impl->owned = true;
  return std::unique_ptr<Fabric>(new Fabric(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Attach(const std::string& lab) {
  if (absl::Status status = ValidateLabName(lab); !status.ok()) return status;
  absl::StatusOr<FabricState> state = LoadState(lab);
  if (!state.ok()) return state.status();
  if (!state->complete) return absl::NotFoundError(absl::StrCat("lab ", lab, " is not complete (cwlab down, then up)"));
  auto impl = std::make_unique<Impl>();
  impl->state = *std::move(state);
  if (absl::Status status = impl->OpenMapsAndRoutes(); !status.ok()) {
    return absl::NotFoundError(
        absl::StrCat("only remains of lab ", lab, " are there (cwlab down): ", absl::string_view(status.message())));
  }
  return std::unique_ptr<Fabric>(new Fabric(std::move(impl)));
}

absl::Status Fabric::Down(const std::string& lab) {
  if (absl::Status status = ValidateLabName(lab); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<LabLock>> lock = LabLock::Take(lab);
  if (!lock.ok()) return lock.status();
  return RemoveLab(lab);
}

std::vector<std::string> Fabric::List() {
  std::set<std::string> labs;
  for (const std::string& lab : LabsOnDisk()) labs.insert(lab);
  for (const std::string& netns : ListNetns()) labs.insert(LabOf(netns));
  labs.erase("");
  return {labs.begin(), labs.end()};
}

Fabric::Fabric(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Fabric::~Fabric() {
  while (!impl_->captures.empty()) StopCapture(impl_->captures.begin()->first).status().IgnoreError();
  impl_->leaf_routes.clear();
  if (impl_->owned) Down(impl_->spec().lab).IgnoreError();
}

void Fabric::Release() {
  impl_->owned = false;
  impl_->state.owner.reset();
  SaveState(impl_->state).IgnoreError();  // at worst the lab later counts as a crashed one, which Down also removes
}

// ---- Names ----

const FabricSpec& Fabric::spec() const { return impl_->spec(); }
int Fabric::hosts() const { return spec().leaves * spec().hosts_per_leaf; }
bool Fabric::ecmp_seeded() const { return impl_->state.ecmp_seeded; }
std::string Fabric::RunDir() const { return LabRunDir(spec().lab); }
std::string Fabric::HostRunDir(int host) const { return absl::StrCat(RunDir(), "/h", host); }
std::string Fabric::HostNetns(int host) const { return NetnsPath(HostName(spec().lab, host)); }
std::string Fabric::LeafNetns(int leaf) const { return NetnsPath(LeafName(spec().lab, leaf)); }
std::string Fabric::SpineNetns(int spine) const { return NetnsPath(SpineName(spec().lab, spine)); }
std::string Fabric::MgmtNetns() const { return NetnsPath(MgmtName(spec().lab)); }
std::string Fabric::HostAddr(int host) const {
  const std::string address = HostAddress(spec(), host);
  return spec().ipv6 ? Address6(address) : address;
}
std::string Fabric::HostGateway(int host) const { return Gateway(HostLeaf(host)); }
std::string Fabric::HostMgmtAddr(int host) const { return HostMgmtAddress(host); }
int Fabric::HostLeaf(int host) const { return host / spec().hosts_per_leaf; }

// ---- Virtual machines and processes ----

absl::StatusOr<int> Fabric::AddTapPort(int leaf, const std::string& device, const std::string& address) {
  if (leaf < 0 || leaf >= spec().leaves) return absl::InvalidArgumentError(absl::StrCat("no leaf ", leaf));
  const int port = hosts() + static_cast<int>(impl_->state.taps.size());
  if (port >= LAB_MAX_HOST_PORTS) return absl::ResourceExhaustedError("too many ports in this lab");
  in_addr parsed;
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1 ||
      !absl::StartsWith(address, absl::StrCat("10.0.", leaf, ".")) || impl_->PortOf(address).ok()) {
    return absl::InvalidArgumentError(absl::StrCat("address ", address, ": use a free one of 10.0.", leaf, ".100-250"));
  }
  absl::StatusOr<std::unique_ptr<LabLock>> lock = LabLock::Take(spec().lab);
  if (!lock.ok()) return lock.status();
  const TapPort tap = {port, leaf, device, address};
  if (absl::Status status = BuildTapPort(spec(), tap); !status.ok()) return status;
  impl_->state.taps.push_back(tap);
  if (absl::Status status = SaveState(impl_->state); !status.ok()) return status;
  return port;
}

absl::StatusOr<int> Fabric::AddHostNic(int host, int leaf, const std::string& device) {
  if (leaf < 0 || leaf >= spec().leaves || host < 0 || host >= hosts()) {
    return absl::InvalidArgumentError(absl::StrCat("no leaf ", leaf, " or no host ", host));
  }
  const int port = hosts() + static_cast<int>(impl_->state.taps.size());
  if (port >= LAB_MAX_HOST_PORTS) return absl::ResourceExhaustedError("too many ports in this lab");
  absl::StatusOr<std::unique_ptr<LabLock>> lock = LabLock::Take(spec().lab);
  if (!lock.ok()) return lock.status();
  const TapPort nic = {port, leaf, absl::StrCat("nic", port), absl::StrCat("10.0.", leaf, ".", 100 + port), host};
  if (absl::Status status = BuildHostNic(spec(), nic, device); !status.ok()) return status;
  impl_->state.taps.push_back(nic);
  if (absl::Status status = SaveState(impl_->state); !status.ok()) return status;
  return port;
}

std::string Fabric::PortAddress(int port) const {
  if (port < hosts()) return HostAddr(port);
  const std::string& address = impl_->state.taps.at(static_cast<size_t>(port - hosts())).address;
  return spec().ipv6 ? Address6(address) : address;
}

absl::Status Fabric::SetHostLinkUp(int port, bool up) {
  const LinkDirection link = LinkDirection::HostToLeaf(port);
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  const SwitchPort end = impl_->Receiver(link);
  const std::string address = PortAddress(port), mac = Mac(HostPortIfindex(port), true);
  const std::string host = address + (spec().ipv6 ? "/128" : "/32");
  return RunInNetns(NetnsPath(end.netns), [&] {
    absl::Status status = RunTool({"ip", "link", "set", end.device, up ? "up" : "down"}).status();
    if (!up || !status.ok()) return status;
    // A port that goes down loses these.
    if (spec().ipv6) {
      status = RunTool({"ip", "addr", "replace", "fe80::1/64", "dev", end.device, "nodad"}).status();
    }
    status.Update(RunTool({"ip", "route", "replace", host, "dev", end.device}).status());
    status.Update(
        RunTool({"ip", "neigh", "replace", address, "dev", end.device, "lladdr", mac, "nud", "permanent"}).status());
    return status;
  });
}

absl::Status Fabric::AddMgmtTap(const std::string& device) { return BuildMgmtTap(spec(), device); }

absl::Status Fabric::RecordProcess(pid_t pid, const std::string& role) {
  const ProcessId process = {pid, StartTicks(pid)};
  if (!process.start_ticks) return absl::NotFoundError(absl::StrCat("no process ", pid));
  return SaveProcess(spec().lab, process, role);
}

void Fabric::ForgetProcess(pid_t pid) { RemoveProcess(spec().lab, pid); }

// ---- Ground truth ----

std::vector<LinkDirection> Fabric::LinkDirections() const {
  std::vector<LinkDirection> links;
  for (int l = 0; l < spec().leaves; ++l) {
    for (int s = 0; s < spec().spines; ++s) {
      links.push_back(LinkDirection::LeafToSpine(l, s));
      links.push_back(LinkDirection::SpineToLeaf(s, l));
    }
  }
  for (int p = 0; p < hosts() + static_cast<int>(impl_->state.taps.size()); ++p) {
    links.push_back(LinkDirection::HostToLeaf(p));
    links.push_back(LinkDirection::LeafToHost(p));
  }
  return links;
}

absl::StatusOr<LinkCounters> Fabric::Link(const LinkDirection& link) const {
  if (absl::Status status = impl_->Check(link); !status.ok()) return status;
  const lab_link_counters c = impl_->maps->Counters(DirectionNumber(link));
  return LinkCounters{link,          c.offered_packets,  c.offered_bytes, c.carried_packets, c.carried_bytes,
                      c.fault_drops, c.fault_drop_bytes, c.ce_marks,      c.probe_packets};
}

std::vector<LinkCounters> Fabric::Links() const {
  std::vector<LinkCounters> counters;
  for (const LinkDirection& link : LinkDirections()) counters.push_back(*Link(link));
  return counters;
}

absl::StatusOr<std::vector<FlowCounters>> Fabric::Flows() const {
  auto flows = impl_->maps->Flows();
  if (!flows.ok()) return flows.status();
  std::vector<LinkDirection> by_number(LAB_MAX_DIRS);
  for (const LinkDirection& link : LinkDirections()) by_number[DirectionNumber(link)] = link;
  std::vector<FlowCounters> counters;
  for (const auto& [key, value] : *flows) {
    const auto text = [&](uint32_t address) { return spec().ipv6 ? Address6(Dotted(address)) : Dotted(address); };
    counters.push_back({by_number[key.direction], text(key.saddr), text(key.daddr), key.dqpn, key.probe != 0,
                        value.packets, value.bytes, value.fault_drops, static_cast<uint16_t>(value.last_sport),
                        static_cast<uint8_t>(value.last_dscp), static_cast<int64_t>(value.last_ns)});
  }
  return counters;
}

uint64_t Fabric::UncountedFlowPackets() const { return impl_->maps->UncountedFlowPackets(); }

// ---- Paths ----

absl::StatusOr<int> Fabric::PathOf(int source_host, int destination_host, uint16_t udp_sport) const {
  return PathOf(HostAddr(source_host), HostAddr(destination_host), udp_sport);
}

absl::StatusOr<int> Fabric::PathOf(const std::string& source, const std::string& destination,
                                   uint16_t udp_sport) const {
  absl::StatusOr<int> from = impl_->PortOf(source), to = impl_->PortOf(destination);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const int leaf = impl_->LeafOfPort(*from);
  if (leaf == impl_->LeafOfPort(*to)) return -1;
  absl::StatusOr<int> output =
      impl_->leaf_routes[leaf]->OutputOf(HostPortIfindex(*from), source, destination, udp_sport, kRocePort);
  if (!output.ok()) return output.status();
  for (int s = 0; s < spec().spines; ++s) {
    if (LeafPortIfindex(leaf, s) == *output) return s;
  }
  return absl::InternalError(absl::StrCat("leaf ", leaf, " forwards by interface ", *output, ", which is no uplink"));
}

}  // namespace cw::lab
