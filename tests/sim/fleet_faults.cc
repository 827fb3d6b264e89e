// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/sim/fleet_world.h"

namespace cw::sim {

using Kind = FleetFault::Kind;

const char* FaultName(Kind kind) {
  constexpr const char* kNames[] = {"none",         "one direction", "cable",         "grey",        "switch",
                                    "NIC",          "host",          "agent",         "flapping",    "swapped",
                                    "congestion",   "incast",        "slow receiver", "slow sender", "clock",
                                    "class paused", "configuration"};
  return kNames[static_cast<int>(kind)];
}

// Between switches, or also at a NIC; seen by enough.
int FleetWorld::PickEdge(bool nic_too) {
  for (int tries = 0; tries < 100'000; ++tries) {
    const int e = Random(static_cast<int>(edge_.size()));
    const Edge& edge = edge_[static_cast<size_t>(e)];
    const bool at_nic = edge.from >= switches_ || edge.to >= switches_;
    if (!at_nic && Watched(e)) return e;
    if (at_nic && nic_too && edge.to >= switches_ && Watched(e)) return e;
  }
  return 0;
}

int FleetWorld::PickHost() {
  for (;;) {
    const int h = Random(static_cast<int>(host_.size()));
    const Host& host = host_[static_cast<size_t>(h)];
    if (host.missing || host.late || host.liar) continue;
    const bool seen = std::all_of(host.nics.begin(), host.nics.end(),
                                  [&](int n) { return Watched(nic_[static_cast<size_t>(n)].down); });
    if (seen) return h;
  }
}

std::string FleetWorld::LinkScope(int edge) const {
  const Edge& e = edge_[static_cast<size_t>(edge)];
  if (const int32_t c = components_.LinkToPort(e.port); c >= 0) return components_.at(c).scope;
  for (size_t c = 0; c < components_.size(); ++c) {
    const fleet::Component& link = components_.at(static_cast<int32_t>(c));
    if (link.part == fleet::Part::kLink && link.links[0].second == e.port) return link.scope;
  }
  return "";
}

bool FleetWorld::ChooseSwapped(FleetFault& f) {
  const int e = PickEdge(false);
  int spine = edge_[static_cast<size_t>(e)].to, leaf = edge_[static_cast<size_t>(e)].from;
  const std::vector<int>& above_it = up_[static_cast<size_t>(spine)];
  if (std::find(above_it.begin(), above_it.end(), leaf) != above_it.end()) std::swap(spine, leaf);
  std::vector<int> others;
  for (const auto& [ends, other] : edge_between_) {
    const std::vector<int>& above = up_[static_cast<size_t>(ends.first)];
    if (ends.second == spine && ends.first != leaf && ends.first < switches_ && Watched(other) &&
        std::count(above.begin(), above.end(), spine) > 0)
      others.push_back(other);
  }
  const int one = edge_between_.at({leaf, spine});
  if (others.empty() || !Watched(one)) return false;
  const int two = others[static_cast<size_t>(Random(static_cast<int>(others.size())))];
  f.edges = {one, two};
  const std::string a = edge_[static_cast<size_t>(one)].port.ToString(),
                    b = edge_[static_cast<size_t>(two)].port.ToString();
  f.cause = fleet::Cause::kSwapped;
  f.scopes = {absl::StrCat("cables at ", a, ", ", b), absl::StrCat("cables at ", b, ", ", a)};
  return true;
}

void FleetWorld::ChooseCable(FleetFault& f) {
  const int e = PickEdge(false);
  const Edge& edge = edge_[static_cast<size_t>(e)];
  const int back = edge_between_.at({edge.to, edge.from});
  f.edges = {e, back};
  const auto [a, b] = std::minmax(node_[static_cast<size_t>(edge.from)], node_[static_cast<size_t>(edge.to)]);
  f.scopes = {absl::StrCat("cable ", a, " = ", b)};
  if (!Watched(back)) f.scopes.insert(LinkScope(e));
}

void FleetWorld::ChooseSwitch(FleetFault& f) {
  const int s = edge_[static_cast<size_t>(PickEdge(false))].to;
  for (size_t i = 0; i < edge_.size(); ++i) {
    if (edge_[i].to == s || edge_[i].from == s) f.edges.insert(static_cast<int>(i));
  }
  f.cause = fleet::Cause::kSwitchDead;
  f.scopes = {"switch " + node_[static_cast<size_t>(s)]};
}

void FleetWorld::ChooseLink(FleetFault& f) {
  switch (f.kind) {
    case Kind::kGrey:
      f.edges = {PickEdge(true)};
      f.loss = 0.005 * std::pow(100, Chance());
      f.cause = fleet::Cause::kLinkGrey;
      break;
    case Kind::kCongestion:
      f.edges = {PickEdge(false)};
      f.queue_ns = 30'000 * std::pow(10, Chance());
      f.cause = fleet::Cause::kCongestion;
      break;
    case Kind::kIncast:
      f.edges = {nic_[static_cast<size_t>(f.nic)].down};
      f.queue_ns = 30'000 * std::pow(10, Chance());
      f.cause = fleet::Cause::kIncast;
      break;
    case Kind::kPaused:  // by a receiver that cannot take more, or between switches
      f.edges = {Chance() < 0.5 ? nic_[static_cast<size_t>(f.nic)].down : PickEdge(false)};
      f.cause = fleet::Cause::kClassPaused;
      break;
    default:
      f.edges = {PickEdge(false)};
      f.cause = f.kind == Kind::kFlapping ? fleet::Cause::kFlapping : fleet::Cause::kLinkDead;
  }
  const int first = *f.edges.begin();
  f.scopes = {LinkScope(first)};
  // Both ways of a NIC are held up.
  if (f.kind == Kind::kPaused && first == nic_[static_cast<size_t>(f.nic)].down)
    f.scopes = {"NIC " + nic_[static_cast<size_t>(f.nic)].address.ToString()};
}

// Everything of one host, or of one of its NICs.
void FleetWorld::ChooseAtHost(FleetFault& f) {
  const Host& host = host_[static_cast<size_t>(f.host)];
  const auto all_of_nic = [&](int n) {
    f.edges.insert({nic_[static_cast<size_t>(n)].up, nic_[static_cast<size_t>(n)].down});
  };
  f.scopes = {"host " + host.name};
  switch (f.kind) {
    case Kind::kNic:
      all_of_nic(f.nic);
      f.told = Chance() < 0.5;
      f.cause = fleet::Cause::kNicDown;
      f.scopes = {"NIC " + nic_[static_cast<size_t>(f.nic)].address.ToString()};
      break;
    case Kind::kHost:
      for (const int n : host.nics) all_of_nic(n);
      f.cause = fleet::Cause::kHostDown;
      break;
    case Kind::kAgent:
      f.cause = fleet::Cause::kAgentGone;
      break;
    case Kind::kClock:
      f.told = Chance() < 0.5;
      f.cause = fleet::Cause::kClock;
      break;
    case Kind::kSettings:
      f.cause = fleet::Cause::kConfiguration;
      f.scopes = {absl::StrCat("NIC eth", nic_[static_cast<size_t>(f.nic)].rail, " of ", host.name)};
      break;
    default:
      f.cause = f.kind == Kind::kSlowSender ? fleet::Cause::kSlowSender : fleet::Cause::kSlowReceiver;
  }
}

FleetFault FleetWorld::Choose(Kind kind) {
  FleetFault f{.kind = kind};
  f.host = PickHost();
  f.nic = host_[static_cast<size_t>(f.host)].nics[static_cast<size_t>(Random(shape_.rails))];
  do f.peer = PickHost();
  while (f.peer == f.host);
  switch (kind) {
    case Kind::kNone:
      break;
    case Kind::kCable:
      ChooseCable(f);
      break;
    case Kind::kSwitch:
      ChooseSwitch(f);
      break;
    case Kind::kSwapped:  // two cables of one spine, at its end
      if (!ChooseSwapped(f)) return Choose(kind);
      break;
    case Kind::kOneDirection:
    case Kind::kFlapping:
    case Kind::kGrey:
    case Kind::kCongestion:
    case Kind::kIncast:
    case Kind::kPaused:
      ChooseLink(f);
      break;
    default:
      ChooseAtHost(f);
  }
  return f;
}

void FleetWorld::Begin(const FleetFault& fault) {
  fault_ = fault;
  active_ = true;
  Apply(true);
}

void FleetWorld::End() {
  active_ = false;
  Apply(false);
}

void FleetWorld::Apply(bool on) {
  Host& host = host_[static_cast<size_t>(fault_.host)];
  const std::string& peer = host_[static_cast<size_t>(fault_.peer)].name;
  fleet::HostEvidence& told = picture_.hosts[static_cast<size_t>(host.place)];
  const bool lossy = fault_.kind != Kind::kCongestion && fault_.kind != Kind::kIncast &&
                     fault_.kind != Kind::kSwapped && fault_.kind != Kind::kPaused;
  for (const int e : fault_.edges) {
    if (lossy) edge_[static_cast<size_t>(e)].loss = on ? fault_.loss : 0;
    edge_[static_cast<size_t>(e)].queue_ns = on ? fault_.queue_ns : 0;
    edge_[static_cast<size_t>(e)].paused = on && fault_.kind == Kind::kPaused;
  }
  picture_.events.clear();
  changed_ = true;
  switch (fault_.kind) {
    case Kind::kHost:
    case Kind::kAgent:
      host.silent = on;
      host.drop_s = second_ + (fault_.kind == Kind::kHost ? Random(40) : 0);
      told.connected = told.connected || !on;
      break;
    case Kind::kNic:
      if (fault_.told)
        Tell(host.name, "nic", "", on,
             {{"nic", absl::StrCat("eth", nic_[static_cast<size_t>(fault_.nic)].rail)},
              {"carrier", on ? "down" : "up"}});
      break;
    case Kind::kSwapped: {
      std::swap(edge_[static_cast<size_t>(*fault_.edges.begin())].port,
                edge_[static_cast<size_t>(*fault_.edges.rbegin())].port);
      LookAtFabric();
      break;
    }
    case Kind::kSlowReceiver:
      Tell(peer, "cause", host.name, false, {{"cause", on ? "slow receiver" : "none"}});
      break;
    case Kind::kSlowSender:
      Tell(host.name, "cause", peer, false, {{"cause", on ? "slow sender" : "none"}});
      break;
    case Kind::kSettings: {
      fleet::NicFact& nic = told.nics[static_cast<size_t>(nic_[static_cast<size_t>(fault_.nic)].rail)];
      const int what = static_cast<int>(fault_.nic % 3);  // known from the fault, so that its end undoes it
      nic.mtu = on && what == 0 ? 1500 : 9000;
      nic.roce_mtu = on && what == 1 ? 1024 : 4096;
      nic.rate_bps = on && what == 2 ? 2e11 : 4e11;
      break;
    }
    case Kind::kClock:
      if (!fault_.told) told.clock_synced = !on;
      for (size_t i = 0; fault_.told && i < host_.size(); ++i) {
        const Host& by = host_[i];
        if (by.missing || by.late || by.liar || (by.name != peer && i % 5 != 0)) continue;
        if (by.name != host.name) Tell(by.name, "clock", host.name, on, {{"disagreement_ns", "5000"}});
      }
      break;
    default:
      break;
  }
}

}  // namespace cw::sim
