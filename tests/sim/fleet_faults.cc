// SPDX-License-Identifier: Apache-2.0
// What faults do to the world.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/fleet_world.h"

namespace cw::sim {
namespace {

using Kind = FleetFault::Kind;
constexpr int kDropS = 40;  // until the service notices that a host is gone
constexpr int kTimes = 12;  // that a cable flaps
constexpr double kShortestNs = 2e9, kLongestNs = 30e9;

}  // namespace

const char* FaultName(Kind kind) {
  constexpr const char* kNames[] = {"none",
                                    "one direction",
                                    "cable",
                                    "grey",
                                    "switch",
                                    "NIC",
                                    "host",
                                    "agent killed",
                                    "flapping",
                                    "swapped",
                                    "congestion",
                                    "incast",
                                    "slow receiver",
                                    "slow sender",
                                    "clock",
                                    "class paused",
                                    "paused at a NIC",
                                    "configuration (MTU)",
                                    "leaf's power",
                                    "rail",
                                    "host reboots",
                                    "agent frozen",
                                    "dead before start",
                                    "agents restart, link dead",
                                    "half of agents restart",
                                    "two at once",
                                    "cable flapping",
                                    "NIC's cable flapping",
                                    "two racks' power",
                                    "uplinks one by one"};
  return kNames[static_cast<int>(kind)];
}

bool Applies(Kind kind, const FleetShape& shape) {
  if (kind == Kind::kSwapped) return shape.planned && !shape.loopback && shape.Answers() && shape.spines > 1;
  if (kind == Kind::kRail) return shape.rails > 1;
  // Of rails one leaf is not a rack; what nobody within a rack asks, or silent switches hide, cannot be told apart.
  if (kind == Kind::kTwoRacks) return shape.rails == 1 && shape.spines > 1 && shape.Answers();
  if (kind == Kind::kUplinks) return shape.peers >= 6 && shape.spines > 1 && shape.rails == 1 && shape.Answers();
  return true;
}

void FleetWorld::SetEdges(const FleetFault& fault, bool on) {
  const bool lossy = fault.kind != Kind::kCongestion && fault.kind != Kind::kIncast && fault.kind != Kind::kSwapped &&
                     fault.kind != Kind::kPaused && fault.kind != Kind::kPausedNic;
  Change(fault.edges, [&] {
    for (const int e : fault.edges) {
      FleetFabric::Edge& edge = fabric_.edges[static_cast<size_t>(e)];
      if (lossy) edge.loss = on ? fault.loss : 0;
      edge.queue_ns = on ? fault.queue_ns : 0;
      edge.paused = on && (fault.kind == Kind::kPaused || fault.kind == Kind::kPausedNic);
    }
    const bool power = fault.kind == Kind::kHost || fault.kind == Kind::kReboot || fault.kind == Kind::kLeafPower;
    for (const int h : fault.hosts) Host(h).up = Host(h).up && !(on && power);
  });
}

// Its host's connection stands for a while.
void FleetWorld::TakePower(const FleetFault& fault) {
  for (const int h : fault.hosts) {
    Host(h).running = false;
    const int64_t drop_ns = fault.kind == Kind::kReboot ? 0 : Draw(random_, kDropS) * kSecondNs;
    After(drop_ns, [this, h] {
      if (!Host(h).running) Host(h).Disconnect();
    });
  }
}

void FleetWorld::Return(int h, bool booted) {
  FleetAgent& host = Host(h);
  for (const size_t p : host.pairs) {
    if (booted) pair_[p]->Boot(now_ns_);
    pair_[p]->StartAgent(now_ns_, ++session_);
    pair_[p]->Look(now_ns_, Host(fabric_.nics[static_cast<size_t>(ends_[p].second)].host).up);
    awake_[p] = true;
  }
  host.Start(now_ns_, ++run_);
}

void FleetWorld::Restart(int h, int64_t down_ns) {
  if (!Host(h).running || Host(h).missing) return;
  Host(h).running = false;
  Host(h).Disconnect();
  After(down_ns, [this, h] { Return(h, false); });
}

// Both ends stay, each with the other's cable; agents notice when they trace again.
void FleetWorld::Swap(const FleetFault& fault) {
  std::swap(fabric_.edges[static_cast<size_t>(*fault.edges.begin())].port,
            fabric_.edges[static_cast<size_t>(*fault.edges.rbegin())].port);
  for (size_t p = 0; p < pair_.size(); ++p) {
    if (std::none_of(fault.edges.begin(), fault.edges.end(), [&](int e) { return pair_[p]->Crosses(e); })) continue;
    After(Draw(random_, 5000) * int64_t{1'000'000}, [this, p] {
      FleetAgent& host = Host(fabric_.nics[static_cast<size_t>(ends_[p].first)].host);
      if (host.running && pair_[p]->Trace(false)) host.PathNews(now_ns_);
    });
  }
}

void FleetWorld::TellClock(const FleetFault& fault, bool on) {
  const std::string& name = Host(fault.host).name();
  for (size_t i = 0; i < host_.size(); ++i) {
    FleetAgent& by = *host_[i];
    if (by.missing || by.late || by.liar || (static_cast<int>(i) != fault.peer && i % 5 != 0)) continue;
    if (by.name() != name) by.Tell(now_ns_, "clock", name, on, {{"disagreement_ns", "5000"}});
  }
}

void FleetWorld::ApplyAtHost(const FleetFault& fault, bool on) {
  FleetAgent &host = Host(fault.host), &peer = Host(fault.peer);
  const int rail = fabric_.nics[static_cast<size_t>(fault.nic)].rail;
  switch (fault.kind) {
    case Kind::kAgent:
      if (!on) return Return(fault.host, false);
      host.running = false;
      return host.Disconnect();
    case Kind::kFrozen:
      host.running = !on;
      if (on)
        return After(kDropS * kSecondNs, [this, h = fault.host] {
          if (!Host(h).running) Host(h).Disconnect();
        });
      host.Connect(now_ns_);
      for (const size_t p : host.pairs) {
        pair_[p]->Rest(now_ns_);
        awake_[p] = true;
      }
      return;
    case Kind::kNic:
      if (fault.told)
        host.Tell(now_ns_, "nic", "", on, {{"nic", absl::StrCat("eth", rail)}, {"carrier", on ? "down" : "up"}});
      return;
    case Kind::kSlowReceiver:
      return peer.Tell(now_ns_, "cause", host.name(), false, {{"cause", on ? "slow receiver" : "none"}});
    case Kind::kSlowSender:
      return host.Tell(now_ns_, "cause", peer.name(), false, {{"cause", on ? "slow sender" : "none"}});
    case Kind::kSettings:
      host.nics[static_cast<size_t>(rail)].mtu = on ? 1500 : 9000;
      return;
    case Kind::kClock:
      if (!fault.told) host.clock_synced = !on;
      return fault.told ? TellClock(fault, on) : void();
    default:
      return;
  }
}

// Down and up again, each for a time of its own, until it has been down so often.
void FleetWorld::Flap(const FleetFault& fault, int times) {
  if (times == 0 || !flaps_) return;
  const int64_t period_ns = static_cast<int64_t>(kShortestNs + Chance(random_) * (kLongestNs - kShortestNs));
  const auto down_ns = static_cast<int64_t>((0.3 + 0.4 * Chance(random_)) * static_cast<double>(period_ns));
  SetEdges(fault, true);
  After(down_ns, [this, fault] { SetEdges(fault, false); });
  After(period_ns, [this, fault, times] { Flap(fault, times - 1); });
}

void FleetWorld::Apply(const FleetFault& fault, bool on) {
  if (fault.kind == Kind::kFlapping) {
    on ? flapping_.push_back(fault) : flapping_.clear();
    if (!on) SetEdges(fault, false);
    return;
  }
  if (Flaps(fault.kind)) {
    flaps_ = on;
    return on ? Flap(fault, kTimes) : SetEdges(fault, false);
  }
  const bool power = fault.kind == Kind::kHost || fault.kind == Kind::kReboot || fault.kind == Kind::kLeafPower;
  for (const int h : fault.hosts) Host(h).up = Host(h).up || (power && !on);
  if (!fault.edges.empty() && fault.kind != Kind::kSwapped && !(fault.kind == Kind::kBeforeStart && on))
    SetEdges(fault, on);
  switch (fault.kind) {
    case Kind::kHost:
    case Kind::kLeafPower:
    case Kind::kReboot:
      if (on) return TakePower(fault);
      for (const int h : fault.hosts) Return(h, true);
      return;
    case Kind::kSwapped:
      return Swap(fault);
    case Kind::kRestart:  // one after the other, when it was found
      for (const int h : fault.hosts) {
        if (on) After((30 + Draw(random_, 10)) * kSecondNs, [this, h] { Restart(h, 3 * kSecondNs); });
      }
      return;
    case Kind::kHalfRestart:
      for (const int h : fault.hosts) {
        if (on)
          After(Draw(random_, 3000) * int64_t{1'000'000},
                [this, h] { Restart(h, (3 + Draw(random_, 5)) * kSecondNs); });
      }
      return;
    default:
      if (fault.host >= 0 && fault.peer >= 0) ApplyAtHost(fault, on);
  }
}

}  // namespace cw::sim
