// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/fleet.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sync/neighbours.h"
#include "sync/vote.h"

namespace cw::sync::sim {
namespace {

constexpr int64_t kVastBoundNs = 3'600 * kSecond;
constexpr uint32_t kSeqAhead = 100'000;

enum Stream : uint64_t { kClockStream = 1, kLinkStream, kSelectStream, kOldStream };

ClockSpec Draw(const ClockRanges& r, Random& random) {
  ClockSpec c;
  c.offset_ns = random.Symmetric(r.offset_ns);
  c.drift_ppb = random.Symmetric(r.drift_ppb);
  c.wander_ppb = r.wander_ppb;
  c.temperature_ppb = r.temperature_ppb;
  c.temperature_period_s = r.temperature_period_s;
  c.temperature_phase = random.Uniform();
  return c;
}

}  // namespace

Fleet::Fleet(const Scenario& scenario_in, uint64_t seed_in)
    : scenario(scenario_in), seed(seed_in), load(scenario_in.link.queue.load) {
  MakeHosts();
  MakeLinks();
  Resolve();
}

void Fleet::MakeHosts() {
  Random random(seed, kClockStream);
  hosts.reserve(static_cast<size_t>(scenario.hosts));
  for (int i = 0; i < scenario.hosts; ++i) {
    Host h{"h" + std::to_string(i), SimClock(Draw(scenario.clock, random), Random(random.Next())), {}, {}};
    for (int n = 0; n < scenario.nics.per_host && scenario.packet; ++n) {
      ClockRanges r;
      r.drift_ppb = scenario.nics.drift_ppb;
      r.wander_ppb = scenario.nics.wander_ppb;
      h.nics.emplace_back(Draw(r, random), Random(random.Next()));
    }
    for (size_t r = 0; r < scenario.regions.size(); ++r) {
      if (i >= scenario.regions[r].from && i < scenario.regions[r].to) h.region = static_cast<int>(r);
    }
    hosts.push_back(std::move(h));
  }
  Random old(seed, kOldStream);
  for (Host& h : hosts) h.old = old.Chance(scenario.old_share);
  for (int v : scenario.victims) hosts[static_cast<size_t>(v)].victim = true;
}

// The graph that the agents choose themselves.
void Fleet::MakeLinks() {
  std::vector<uint64_t> ids;
  for (const Host& h : hosts) ids.push_back(HostId(h.name));
  lowest_id = *std::min_element(ids.begin(), ids.end());
  const auto chosen = ChooseAllNeighbours(ids, seed);
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (uint32_t a = 0; a < chosen.size(); ++a) {
    for (const size_t b : chosen[a]) {
      if (a < b) edges.emplace_back(a, static_cast<uint32_t>(b));
    }
  }
  Random lengths(seed, kLinkStream);
  for (const auto& [a, b] : edges) {
    Link link{{a, b}, scenario.link.path.base_ns + lengths.Uniform() * scenario.link.base_spread_ns, 0};
    const int ra = hosts[a].region, rb = hosts[b].region;
    if (ra != rb) {
      for (const int r : {ra, rb}) {
        if (r < 0) continue;
        const Region& region = scenario.regions[static_cast<size_t>(r)];
        link.base_ns += region.delay_ns;
        link.asymmetry_ns += (r == rb ? 1 : -1) * region.asymmetry_ns;
      }
    }
    const auto id = static_cast<uint32_t>(links.size());
    hosts[a].peers.push_back({b, id, 0});
    hosts[b].peers.push_back({a, id, 1});
    links.push_back(link);
  }
}

// How many liars among its neighbours a host has to withstand.
int Fleet::Tolerated(uint32_t host) const {
  const size_t d = hosts[host].peers.size();
  return d + 1 == hosts.size() ? MostLiarsOfAll(static_cast<int>(d)) : MostLiars(static_cast<int>(d));
}

void Fleet::MarkVictims() {
  for (uint32_t i = 0; i < hosts.size(); ++i) {
    const auto lies = [this](const Peer& p) { return hosts[p.host].lie.on; };
    const auto lying = std::count_if(hosts[i].peers.begin(), hosts[i].peers.end(), lies);
    if (lying > Tolerated(i)) hosts[i].victim = true;
  }
}

double Fleet::LieNs(const Host& liar, uint32_t towards, TrueNs t) const {
  if (!liar.lie.on) return 0;
  const double ns = liar.lie.ns + liar.lie.ppb * static_cast<double>(t - liar.lie.since) / kSecond;
  return liar.lie.two_faced && towards % 2 == 1 ? -ns : ns;
}

void Fleet::Forge(const Host& liar, FleetClaim& claim) const {
  if (!liar.lie.on) return;
  switch (liar.lie.forge) {
    case Forgery::kNone:
    case Forgery::kMirror:  // as it is heard: World::Hear
      return;
    case Forgery::kIdentity:
      claim.host_id = claim.reference_id = lowest_id;
      claim.hops = 0;
      return;
    case Forgery::kZeroBound:
      claim.width_ns = 0;
      return;
    case Forgery::kVastBound:
      claim.width_ns = kVastBoundNs;
      return;
    case Forgery::kAhead:
      claim.reference_seq += kSeqAhead;
      return;
    case Forgery::kInvented:
      claim.reference_id = 1;
      claim.hops = 1;
      claim.width_ns = 0;
      return;
  }
}

std::vector<uint32_t> Fleet::MostPerHost(int most, Random& random) const {
  std::vector<uint32_t> order(hosts.size()), chosen;
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  std::vector<int> lying(hosts.size(), 0);
  for (const uint32_t h : order) {
    const bool fits = std::all_of(hosts[h].peers.begin(), hosts[h].peers.end(),
                                  [&](const Peer& p) { return lying[p.host] < std::min(most, Tolerated(p.host)); });
    if (!fits) continue;
    chosen.push_back(h);
    for (const Peer& p : hosts[h].peers) ++lying[p.host];
  }
  return chosen;
}

uint8_t Fleet::PartOf(uint32_t host, int parts, double share) const {
  const auto place = static_cast<double>(host), all = static_cast<double>(hosts.size());
  if (parts > 2) return static_cast<uint8_t>(place * parts / all);
  return place < share * all ? 0 : 1;
}

std::vector<uint32_t> Fleet::Select(const Event& event, Random& random) const {
  const Selector& who = event.who;
  std::vector<uint32_t> out(who.hosts.begin(), who.hosts.end());
  for (uint32_t i = 0; who.part >= 0 && i < hosts.size(); ++i) {
    if (PartOf(i, event.parts, event.value) == who.part) out.push_back(i);
  }
  if (who.most_per_host > 0) {
    const auto more = MostPerHost(who.most_per_host, random);
    out.insert(out.end(), more.begin(), more.end());
  }
  if (who.neighbours_of >= 0) {
    const auto& peers = hosts[static_cast<size_t>(who.neighbours_of)].peers;
    const auto part = static_cast<size_t>(std::ceil(who.share * static_cast<double>(peers.size())));
    const size_t count = who.count > 0 ? static_cast<size_t>(who.count) : part;
    for (size_t k = 0; k < std::min(count, peers.size()); ++k) {
      out.push_back(peers[k].host);
    }
  }
  if (who.neighbours_of >= 0) return out;
  const auto share = static_cast<size_t>(who.share * static_cast<double>(hosts.size()) + 0.5);
  while (out.size() < share) {
    const auto h = static_cast<uint32_t>(random.Below(hosts.size()));
    if (!hosts[h].victim && std::find(out.begin(), out.end(), h) == out.end()) out.push_back(h);
  }
  return out;
}

// The truth about clocks is made before the start, so that it does not depend on when it is looked at.
void Fleet::Foresee(const Happening& h, Random& random) {
  const auto lasts = static_cast<TrueNs>(h.event.seconds * kSecond);
  for (const uint32_t i : h.hosts) {
    Host& host = hosts[i];
    if (h.event.kind == EventKind::kStep) host.clock.Step(h.at, h.event.ns);
    if (h.event.kind == EventKind::kRamp) host.clock.Ramp(h.at, h.event.ppb, h.event.seconds);
    if (h.event.kind == EventKind::kDrift) host.clock.Jump(h.at, random.Symmetric(h.event.ppb));
    if (h.event.kind == EventKind::kSuspend && h.event.stops_clock) {
      host.clock.Step(h.at + lasts, -h.event.seconds * kSecond);
    }
    if (h.event.kind == EventKind::kRestart && h.event.reboot) {
      host.clock.Step(h.at + lasts, random.Symmetric(scenario.clock.offset_ns));
    }
    if (h.event.kind == EventKind::kJoin) host.up = false;
  }
}

void Fleet::Resolve() {
  Random random(seed, kSelectStream);
  for (const Event& e : scenario.events) {
    Happening h{e, static_cast<TrueNs>(e.at_s * kSecond), Select(e, random)};
    Foresee(h, random);
    happenings.push_back(std::move(h));
  }
}

}  // namespace cw::sync::sim
