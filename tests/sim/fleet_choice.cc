// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_choice.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace cw::sim {

using Kind = FleetFault::Kind;

FleetFault FleetWorld::Choose(Kind kind) { return FleetChoice(*this).Choose(kind); }

std::vector<FleetFault> FleetWorld::ChooseUplinks() { return FleetChoice(*this).ChooseUplinks(); }

FleetChoice::FleetChoice(FleetWorld& world) : world_(world), topology_(*world.service().picture().topology) {}

bool FleetChoice::BetweenSwitches(int e) const {
  return world_.fabric_.IsSwitch(EdgeAt(e).from) && world_.fabric_.IsSwitch(EdgeAt(e).to);
}

// Between switches, or also towards a NIC; seen by enough.
int FleetChoice::PickEdge(bool nic_too) {
  for (int tries = 0; tries < 100'000; ++tries) {
    const int e = Random(static_cast<int>(world_.fabric_.edges.size()));
    const bool fits = BetweenSwitches(e) || (nic_too && !world_.fabric_.IsSwitch(EdgeAt(e).to));
    if (fits && world_.Watched(e)) return e;
  }
  return 0;
}

int FleetChoice::PickHost() {
  for (int tries = 0; tries < 10'000; ++tries) {
    const int h = Random(static_cast<int>(world_.host_.size()));
    const FleetAgent& host = world_.Host(h);
    if (host.missing || host.late || host.liar) continue;
    const auto& nics = world_.fabric_.nics;
    if (std::all_of(nics.begin(), nics.end(), [&](const auto& n) { return n.host != h || world_.Watched(n.down); }))
      return h;
  }
  return 0;
}

std::string FleetChoice::SwitchName(int node) const { return SwitchName(node, -1); }

// As if nobody had seen the port where this link ends.
std::string FleetChoice::SwitchName(int node, int unseen) const {
  const Addr hidden = unseen < 0 ? Addr() : world_.fabric_.HopAt(unseen);
  const auto name_of = [&](int s) { return topology_.switches[static_cast<size_t>(s)].name; };
  int found = -1;
  Addr least;
  for (size_t e = 0; e < world_.fabric_.edges.size(); ++e) {
    if (EdgeAt(static_cast<int>(e)).to != node) continue;
    const Addr port = world_.fabric_.HopAt(static_cast<int>(e));
    const auto known = topology_.switch_of.find(port);
    if (known == topology_.switch_of.end()) continue;
    found = known->second;
    if (port != hidden && (least.is_zero() || port < least)) least = port;
  }
  if (found < 0) return "";
  return unseen >= 0 && name_of(found) == hidden.ToString() ? least.ToString() : name_of(found);
}

// By any pair of hops that stands for it on a way that is probed.
std::set<std::string> FleetChoice::LinkScopes(int edge) const {
  std::set<std::pair<Addr, Addr>> ids;
  for (size_t p = 0; p < world_.pair_.size(); ++p) {
    const FleetFabric::Nic &from = world_.fabric_.nics[static_cast<size_t>(world_.ends_[p].first)],
                           &to = world_.fabric_.nics[static_cast<size_t>(world_.ends_[p].second)];
    for (const FleetFabric::Way& way : world_.pair_[p]->ways()) {
      const auto at = static_cast<size_t>(std::find(way.begin(), way.end(), edge) - way.begin());
      if (at == way.size()) continue;
      const Addr before = at == 0 ? from.address : world_.fabric_.HopAt(way[at - 1]);
      ids.insert({before, at + 1 == way.size() ? to.address : world_.fabric_.HopAt(edge)});
    }
  }
  std::set<std::string> scopes;
  for (const fleet::TopologyLink& link : topology_.links) {
    if (std::any_of(link.ids.begin(), link.ids.end(), [&](const auto& id) { return ids.contains(id); }))
      scopes.insert(absl::StrCat("link ", link.ids.front().first.ToString(), ">", link.ids.front().second.ToString()));
  }
  return scopes;
}

// One of parallel cables has no name but its links'.
std::set<std::string> FleetChoice::CableScopes(int edge) const {
  const int back = EdgeAt(edge).back;
  const auto [a, b] = std::minmax({SwitchName(EdgeAt(edge).from), SwitchName(EdgeAt(edge).to)});
  std::set<std::string> scopes = {absl::StrCat("cable ", a, " = ", b)};
  if (world_.shape_.parallel > 1 || !world_.Watched(back)) scopes.merge(LinkScopes(edge));
  if (world_.shape_.parallel > 1) scopes.merge(LinkScopes(back));
  return scopes;
}

// Nobody ever saw the port where it ends, so it has no name but its ends'; all that is certain is that paths over one
// of them are dead.
void FleetChoice::AddEnds(FleetFault& f) const {
  const int e = *f.edges.begin();
  const std::string from = SwitchName(EdgeAt(e).from), to = SwitchName(EdgeAt(e).to, e);
  f.scopes.insert(absl::StrCat("link ", from, ">", to));
  f.instead = {{fleet::Cause::kPathsDead, "paths over switch " + from},
               {fleet::Cause::kPathsDead, "paths over switch " + to}};
}

void FleetChoice::ChooseCable(FleetFault& f) {
  const int e = PickEdge(false);
  f.edges = {e, EdgeAt(e).back};
  f.scopes = CableScopes(e);
}

std::vector<FleetFault> FleetChoice::ChooseUplinks() {
  const int e = PickEdge(true);
  const auto at_nic = std::find_if(world_.fabric_.nics.begin(), world_.fabric_.nics.end(), [&](const auto& nic) {
    return nic.leaf == EdgeAt(e).from || nic.leaf == EdgeAt(e).to;
  });
  const int leaf = at_nic == world_.fabric_.nics.end() ? world_.fabric_.nics[0].leaf : at_nic->leaf;
  std::vector<FleetFault> uplinks;
  for (int up = 0; up < static_cast<int>(world_.fabric_.edges.size()); ++up) {
    if (EdgeAt(up).from != leaf || !BetweenSwitches(up)) continue;
    uplinks.push_back({.kind = Kind::kUplinks, .edges = {up, EdgeAt(up).back}, .scopes = CableScopes(up)});
  }
  return uplinks;
}

void FleetChoice::AddSwitch(int node, FleetFault& f) const {
  for (size_t i = 0; i < world_.fabric_.edges.size(); ++i) {
    if (EdgeAt(static_cast<int>(i)).to == node || EdgeAt(static_cast<int>(i)).from == node)
      f.edges.insert(static_cast<int>(i));
  }
}

void FleetChoice::ChooseSwitch(FleetFault& f) {
  const int s = EdgeAt(PickEdge(false)).to;
  AddSwitch(s, f);
  f.cause = fleet::Cause::kSwitchDead;
  f.scopes = {"switch " + SwitchName(s)};
}

// The whole rack's: its hosts, and all leaves that they are plugged into. Each of these names it.
void FleetChoice::ChoosePower(FleetFault& f) {
  const int at = world_.fabric_.nics[static_cast<size_t>(f.nic)].leaf;
  f.cause = fleet::Cause::kSwitchDead;
  for (const FleetFabric::Nic& nic : world_.fabric_.nics) {
    if (nic.leaf == at) f.hosts.insert(nic.host);
  }
  for (const FleetFabric::Nic& nic : world_.fabric_.nics) {
    if (!f.hosts.contains(nic.host)) continue;
    AddSwitch(nic.leaf, f);
    f.edges.merge(world_.EdgesOf(nic.host));
    f.scopes.insert("switch " + SwitchName(nic.leaf));
    // Where the leaf answers nothing, that its hosts are down is all that can be seen.
    if (!world_.shape_.Answers()) f.instead.insert({fleet::Cause::kHostDown, "host " + world_.Host(nic.host).name()});
  }
  std::erase_if(f.hosts, [&](int h) { return world_.Host(h).missing; });
}

void FleetChoice::ChooseRail(FleetFault& f) {
  const int rail = Random(world_.shape_.rails);
  for (const FleetFabric::Nic& nic : world_.fabric_.nics) {
    if (nic.rail == rail) AddSwitch(nic.leaf, f);
  }
  f.cause = fleet::Cause::kRailDown;
  f.scopes = {absl::StrCat("rail eth", rail)};
}

bool FleetChoice::ChooseSwapped(FleetFault& f) {
  const int one = PickEdge(false);
  std::vector<int> others;
  for (size_t e = 0; e < world_.fabric_.edges.size(); ++e) {
    const int other = static_cast<int>(e);
    if (EdgeAt(other).to == EdgeAt(one).to && EdgeAt(other).from != EdgeAt(one).from && BetweenSwitches(other) &&
        world_.Watched(other) && world_.fabric_.IsLeaf(EdgeAt(other).from) == world_.fabric_.IsLeaf(EdgeAt(one).from))
      others.push_back(other);
  }
  if (others.empty() || world_.fabric_.IsLeaf(EdgeAt(one).to)) return false;  // at the end of a spine
  const int two = others[static_cast<size_t>(Random(static_cast<int>(others.size())))];
  f.edges = {one, two};
  const std::string a = EdgeAt(one).port.ToString(), b = EdgeAt(two).port.ToString();
  f.cause = fleet::Cause::kSwapped;
  f.scopes = {absl::StrCat("cables at ", a, ", ", b), absl::StrCat("cables at ", b, ", ", a)};
  return true;
}

void FleetChoice::ChooseLink(FleetFault& f) {
  const FleetFabric::Nic& nic = world_.fabric_.nics[static_cast<size_t>(f.nic)];
  const bool at_nic = f.kind == Kind::kIncast || f.kind == Kind::kPausedNic;
  f.edges = {at_nic ? nic.down : PickEdge(f.kind == Kind::kGrey)};
  f.scopes = LinkScopes(*f.edges.begin());
  switch (f.kind) {
    case Kind::kGrey:
      f.loss = 0.005 * std::pow(100, Chance(world_.random_));
      f.cause = fleet::Cause::kLinkGrey;
      break;
    case Kind::kCongestion:
    case Kind::kIncast:
      f.queue_ns = 30'000 * std::pow(10, Chance(world_.random_));
      f.cause = at_nic ? fleet::Cause::kIncast : fleet::Cause::kCongestion;
      break;
    case Kind::kPausedNic:
      f.scopes.insert("NIC " + nic.address.ToString());
      [[fallthrough]];
    case Kind::kPaused:
      f.cause = fleet::Cause::kClassPaused;
      break;
    default:
      f.cause = f.kind == Kind::kFlapping ? fleet::Cause::kFlapping : fleet::Cause::kLinkDead;
  }
}

// Everything of one host, or of one of its NICs.
void FleetChoice::ChooseAtHost(FleetFault& f) {
  const FleetFabric::Nic& nic = world_.fabric_.nics[static_cast<size_t>(f.nic)];
  const std::string& name = world_.Host(f.host).name();
  f.scopes = {"host " + name};
  f.told = Chance(world_.random_) < 0.5;
  switch (f.kind) {
    case Kind::kNic:
    case Kind::kNicFlaps:
      f.edges = {nic.up, nic.down};
      f.cause = f.kind == Kind::kNic ? fleet::Cause::kNicDown : fleet::Cause::kFlapping;
      f.scopes = {"NIC " + nic.address.ToString()};
      break;
    case Kind::kHost:
    case Kind::kReboot:
      f.edges = world_.EdgesOf(f.host);
      f.hosts = {f.host};
      f.cause = fleet::Cause::kHostDown;
      break;
    case Kind::kAgent:
    case Kind::kFrozen:
      f.cause = fleet::Cause::kAgentGone;
      break;
    case Kind::kClock:
      f.cause = fleet::Cause::kClock;
      break;
    case Kind::kSettings:
      f.cause = fleet::Cause::kConfiguration;
      f.scopes = {absl::StrCat("NIC eth", nic.rail, " of ", name)};
      break;
    default:
      f.cause = f.kind == Kind::kSlowSender ? fleet::Cause::kSlowSender : fleet::Cause::kSlowReceiver;
  }
}

FleetFault FleetChoice::Choose(Kind kind) {
  FleetFault f{.kind = kind};
  f.host = PickHost();
  do f.peer = PickHost();
  while (f.peer == f.host && world_.host_.size() > 1);
  std::vector<int> nics;
  for (size_t n = 0; n < world_.fabric_.nics.size(); ++n) {
    if (world_.fabric_.nics[n].host == f.host) nics.push_back(static_cast<int>(n));
  }
  f.nic = nics[static_cast<size_t>(Random(static_cast<int>(nics.size())))];
  switch (kind) {
    case Kind::kCable:
    case Kind::kCableFlaps:
      ChooseCable(f);
      if (kind == Kind::kCableFlaps) f.cause = fleet::Cause::kFlapping;
      break;
    case Kind::kSwitch:
      ChooseSwitch(f);
      break;
    case Kind::kSwapped:
      while (!ChooseSwapped(f)) {
      }
      break;
    case Kind::kLeafPower:
      ChoosePower(f);
      break;
    case Kind::kRail:
      ChooseRail(f);
      break;
    case Kind::kRestart:
    case Kind::kHalfRestart:
    case Kind::kBeforeStart:
      if (kind != Kind::kHalfRestart) ChooseLink(f);
      if (kind == Kind::kBeforeStart) AddEnds(f);
      for (int h = 0; h < static_cast<int>(world_.host_.size()) && kind != Kind::kBeforeStart; ++h) {
        if (!world_.Host(h).missing && Random(2) == 0) f.hosts.insert(h);
      }
      break;
    case Kind::kOneDirection:
    case Kind::kFlapping:
    case Kind::kGrey:
    case Kind::kCongestion:
    case Kind::kIncast:
    case Kind::kPaused:
    case Kind::kPausedNic:
      ChooseLink(f);
      break;
    default:
      ChooseAtHost(f);
  }
  return f;
}

}  // namespace cw::sim
