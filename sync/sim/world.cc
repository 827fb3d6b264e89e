// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/world.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "sync/mesh.h"
#include "sync/neighbours.h"
#include "sync/vote.h"

namespace cw::sync::sim {
namespace {

constexpr uint64_t kWorldStream = 5'000'000;
constexpr int64_t kTaiEpochNs = 1'700'000'000 * kSecond;  // TAI − true time
constexpr double kRoundJitter = 0.05;                     // timers are late by up to so much of a round
constexpr double kClaimWaitNs = 2'000'000;                // a claim waits in queues and for its agent up to so long
constexpr uint64_t kVerdictsEvery = 10;                   // samples

}  // namespace

World::World(const Scenario& scenario, uint64_t seed)
    : fleet_(scenario, seed),
      links_(scenario.packet ? MakePacketLinks(fleet_) : MakeModelLinks(fleet_)),
      nodes_(fleet_.hosts.size()),
      random_(seed, kWorldStream),
      measure_(fleet_) {
  const double round_ns = scenario.round_s * kSecond;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    by_name_.emplace(fleet_.hosts[i].name, i);
    nodes_[i].heard.resize(fleet_.hosts[i].peers.size());
    if (fleet_.hosts[i].up) Start(i, 0);
    events_.push({static_cast<TrueNs>(random_.Uniform() * round_ns), Kind::kRound, i});
    if (scenario.packet && scenario.glance_s > 0) {
      events_.push({static_cast<TrueNs>(random_.Uniform() * scenario.glance_s * kSecond), Kind::kGlance, i});
    }
  }
  for (uint32_t i = 0; i < fleet_.happenings.size(); ++i) events_.push({fleet_.happenings[i].at, Kind::kHappening, i});
  events_.push({static_cast<TrueNs>(scenario.measure_s * kSecond), Kind::kMeasure, 0});
}

void World::Start(uint32_t host, TrueNs t) {
  Host& h = fleet_.hosts[host];
  h.up = true;
  ++h.boots;
  Node& node = nodes_[host];
  node.agreement = std::make_unique<Agreement>(h.name, Mix(fleet_.seed * 1'000'003 + host * 31 + h.boots));
  node.agreement->SetMembers(nodes_.size());
  node.said_at.fill(-1);
  for (Heard& heard : node.heard) heard = Heard();
  links_->Forget(host, t);
}

Metrics World::Run() {
  const auto end = static_cast<TrueNs>(fleet_.scenario.seconds * kSecond);
  while (!events_.empty() && events_.top().at <= end) {
    const Next now = events_.top();
    events_.pop();
    switch (now.kind) {
      case Kind::kHappening:
        links_->AdvanceTo(now.at);
        Happen(fleet_.happenings[now.index], now.index);
        break;
      case Kind::kResume:
        links_->AdvanceTo(now.at);
        Resume(fleet_.happenings[now.index]);
        break;
      case Kind::kMeasure:
        MeasureAll(now.at);
        events_.push({now.at + static_cast<TrueNs>(fleet_.scenario.measure_s * kSecond), Kind::kMeasure, 0});
        break;
      case Kind::kGlance:
        if (fleet_.hosts[now.index].up) Glance(now.index, now.at);
        events_.push({now.at + static_cast<TrueNs>(fleet_.scenario.glance_s * kSecond), Kind::kGlance, now.index});
        break;
      case Kind::kRound: {
        if (fleet_.hosts[now.index].up) Round(now.index, now.at);
        const double late = 1 + kRoundJitter * random_.Uniform();
        events_.push({now.at + static_cast<TrueNs>(late * fleet_.scenario.round_s * kSecond), Kind::kRound, now.index});
        break;
      }
    }
  }
  if (cost_.rounds > 0) cost_.update_us /= static_cast<double>(cost_.rounds);
  Metrics m = measure_.Result();
  const bool asymmetric =
      std::any_of(fleet_.links.begin(), fleet_.links.end(), [](const Link& l) { return l.added_ns != 0; });
  if (asymmetric) AuditMesh(m);
  return m;
}

// Does the production audit of all links name the asymmetric ones, and no others?
void World::AuditMesh(Metrics& m) {
  const auto end = static_cast<TrueNs>(fleet_.scenario.seconds * kSecond);
  links_->AdvanceTo(end);
  std::vector<MeshLink> mesh;
  std::vector<const Link*> of;
  for (uint32_t id = 0; id < fleet_.links.size(); ++id) {
    const Link& l = fleet_.links[id];
    const Estimate e = links_->View(id, 0, end);
    if (e.state != SyncState::kSynchronised) continue;
    mesh.push_back({l.host[0], l.host[1], static_cast<double>(e.offset_ns), e.slope_ppb,
                    static_cast<double>(std::max<int64_t>(1, e.error_est_ns)), 1000});
    of.push_back(&l);
  }
  const MeshResult result = SolveMesh(fleet_.hosts.size(), mesh);
  double asymmetric = 0, named = 0, wrongly = 0;
  for (size_t i = 0; i < mesh.size(); ++i) {
    const bool is = of[i]->added_ns != 0;
    asymmetric += is;
    (is ? named : wrongly) += result.links[i].suspect;
  }
  if (asymmetric > 0) m["suspects_named"] = named / asymmetric;
  m["suspects_wrong"] = wrongly;
}

// Takes the newest claim that has arrived from this neighbour. Which ones are lost depends on the claim alone.
void World::Hear(uint32_t host, size_t peer, TrueNs t) {
  const Peer& p = fleet_.hosts[host].peers[peer];
  Heard& heard = nodes_[host].heard[peer];
  const Link& link = fleet_.links[p.link];
  if (!fleet_.Connected(link)) return;
  const Node& from = nodes_[p.host];
  size_t best = from.said.size();
  for (size_t k = 0; k < from.said.size(); ++k) {
    const TrueNs at = from.said_at[k];
    if (at <= heard.said) continue;
    Random fate(static_cast<uint64_t>(at), p.link * 2ull + p.end);
    if (fate.Chance(fleet_.scenario.link.loss)) continue;
    const TrueNs arrives = at + static_cast<TrueNs>(link.base_ns + fate.Uniform() * kClaimWaitNs);
    if (arrives > t) continue;
    best = k;
    heard.said = at;
    heard.at = arrives;
  }
  if (best == from.said.size()) return;
  if (fleet_.hosts[host].old && from.said[best].split) return;  // unknown bits: refused as a fault
  heard.claim = from.said[best];
  heard.claim.offset_ns += std::llround(fleet_.LieNs(fleet_.hosts[p.host], host, heard.said));
  const Lie& lie = fleet_.hosts[p.host].lie;
  if (lie.on && lie.forge == Forgery::kMirror) heard.claim.offset_ns += MirrorNs(host, p.host, heard.said);
  fleet_.Forge(fleet_.hosts[p.host], heard.claim);
}

// What the liar has to add for the host to hear its own time.
int64_t World::MirrorNs(uint32_t host, uint32_t liar, TrueNs t) const {
  const auto fleet_ns = [&](uint32_t i) {
    return nodes_[i].agreement->now().ToFleetNs(fleet_.hosts[i].clock.Local(t));
  };
  return fleet_ns(host) - fleet_ns(liar);
}

AnchorReading World::ReadAnchor(uint32_t host, TrueNs t) {
  for (const AnchorSpec& a : fleet_.scenario.anchors) {
    const double t_s = static_cast<double>(t) / kSecond;
    if (t_s < a.from_s || t_s >= a.to_s) continue;
    if (std::find(a.hosts.begin(), a.hosts.end(), static_cast<int>(host)) == a.hosts.end()) continue;
    const double error = a.error_ns + a.ppb * (t_s - a.from_s) + random_.Normal(a.noise_ns);
    return {true, fleet_.hosts[host].clock.Local(t), kTaiEpochNs + t + std::llround(error), std::llround(a.bound_ns)};
  }
  return {};
}

// What a host sees of its neighbours, into views_.
void World::Look(uint32_t host, TrueNs t) {
  links_->AdvanceTo(t);
  const Node& node = nodes_[host];
  const Host& h = fleet_.hosts[host];
  views_.resize(h.peers.size());
  for (const Peer& p : h.peers) {  // of a large fleet nothing is in the cache
    __builtin_prefetch(&fleet_.hosts[p.host]);
    __builtin_prefetch(&fleet_.hosts[p.host].clock);
    __builtin_prefetch(nodes_[p.host].said_at.data());
    __builtin_prefetch(&fleet_.links[p.link]);
  }
  for (size_t k = 0; k < h.peers.size(); ++k) {
    Hear(host, k, t);
    const Peer& p = h.peers[k];
    const Heard& heard = node.heard[k];
    NeighbourView& v = views_[k];
    v.name = fleet_.hosts[p.host].name;
    v.link = links_->View(p.link, p.end, t);
    v.claim = heard.claim;
    v.claim_age_ns = heard.at < 0 ? INT64_MAX / 2 : t - heard.at;
  }
}

// Between rounds, as agents do: a jump of the clock's rate does not wait.
void World::Glance(uint32_t host, TrueNs t) {
  Look(host, t);
  if (nodes_[host].agreement->RateJumped(fleet_.hosts[host].clock.Local(t), views_)) Round(host, t);
}

// The version before told the (f+1)-th smallest of the neighbours' distances from the reference, each with its link.
int64_t World::OldBoundNs(uint32_t host) const {
  std::vector<int64_t> distances;
  for (const NeighbourView& v : views_) {
    if (v.claim.timeline == 0 || v.link.state == SyncState::kUnknown) continue;
    distances.push_back(v.link.bound_ns + v.claim.width_ns);
  }
  if (distances.empty() || HostId(fleet_.hosts[host].name) == fleet_.lowest_id) return 0;
  const auto f = distances.begin() + MostLiars(static_cast<int>(distances.size()));
  std::nth_element(distances.begin(), f, distances.end());
  return *f;
}

void World::Round(uint32_t host, TrueNs t) {
  Look(host, t);
  Node& node = nodes_[host];
  const Host& h = fleet_.hosts[host];
  const AnchorReading anchor = fleet_.scenario.anchors.empty() ? AnchorReading{} : ReadAnchor(host, t);
  const int64_t local = h.clock.Local(t);
  const auto before = std::chrono::steady_clock::now();
  node.agreement->Update(local, views_, anchor);
  FleetClaim claim = node.agreement->Claim();
  cost_.update_us += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count();
  ++cost_.rounds;
  node.updated = t;
  if (h.old) {
    claim.split = false;
    claim.width_ns = OldBoundNs(host);
  }
  const size_t slot = node.next_said++ % node.said.size();
  node.said_at[slot] = t;
  node.said[slot] = claim;
  for (const Peer& p : h.peers) links_->Send(p.link, p.end, t);
}

void World::Happen(const Happening& h, uint32_t index) {
  const auto lasts = static_cast<TrueNs>(h.event.seconds * kSecond);
  const auto grace = static_cast<TrueNs>(fleet_.scenario.grace_s * kSecond);
  for (const uint32_t i : h.hosts) {
    Host& host = fleet_.hosts[i];
    const bool lasting = h.event.kind == EventKind::kSuspend || h.event.kind == EventKind::kRestart;
    if (lasting || h.event.kind == EventKind::kStep || h.event.kind == EventKind::kJoin) {
      host.unfair_until = std::max(host.unfair_until, h.at + grace + (lasting ? lasts : 0));
    }
    if (lasting || h.event.kind == EventKind::kLeave) host.up = false;
    if (h.event.kind == EventKind::kJoin) Start(i, h.at);
    if (h.event.kind == EventKind::kStep && h.event.noticed && host.up) {
      Notice(i, h.at);
    }
    if (h.event.kind == EventKind::kLie) {
      host.lie = {true, h.event.two_faced, h.event.forge, h.at, h.event.ns, h.event.ppb};
      host.liar_ever = true;
    }
    if (h.event.kind == EventKind::kTruth) host.lie.on = false;
    if (h.event.kind == EventKind::kAsymmetry) {
      size_t left = h.event.who.count > 0 ? static_cast<size_t>(h.event.who.count) : host.peers.size();
      for (const Peer& p : host.peers) {
        if (std::find(h.hosts.begin(), h.hosts.end(), p.host) != h.hosts.end()) continue;  // of the same rack
        if (left-- == 0) break;
        fleet_.links[p.link].added_from = h.at;
        fleet_.links[p.link].added_for_ns = static_cast<double>(lasts);
        fleet_.links[p.link].added_ns = h.event.ns;
        fleet_.links[p.link].added_towards = p.end;
      }
    }
    if (lasting) events_.push({h.at + lasts, Kind::kResume, index});
  }
  if (h.event.kind == EventKind::kPartition || h.event.kind == EventKind::kHeal) {
    const bool whole = h.event.kind == EventKind::kHeal;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      fleet_.hosts[i].group = whole ? 0 : fleet_.PartOf(i, h.event.parts, h.event.value);
    }
  }
  if (h.event.kind == EventKind::kLoad) fleet_.load = h.event.value;
  if (h.event.kind == EventKind::kLie) fleet_.MarkVictims();
  links_->Changed(h.at);
}

// The agent is told that its clock was stepped or slept.
void World::Notice(uint32_t host, TrueNs t) {
  links_->Forget(host, t);
  nodes_[host].agreement->Disrupted(fleet_.hosts[host].clock.Local(t));
}

void World::Resume(const Happening& h) {
  const TrueNs t = h.at + static_cast<TrueNs>(h.event.seconds * kSecond);
  for (const uint32_t i : h.hosts) {
    Host& host = fleet_.hosts[i];
    if (host.up) continue;  // several hosts of one happening: the first resume serves all
    if (h.event.kind == EventKind::kRestart) {
      host.old = false;
      Start(i, t);
    } else {
      host.up = true;
      if (h.event.noticed) Notice(i, t);
    }
  }
  links_->Changed(t);
}

HostSample World::Sample(uint32_t host, TrueNs t) {
  const Host& h = fleet_.hosts[host];
  HostSample s;
  s.up = h.up;
  if (!h.up || nodes_[host].agreement == nullptr) return s;
  const Agreement& agreement = *nodes_[host].agreement;
  const FleetTime& now = agreement.now();
  s.synchronised = now.state == SyncState::kSynchronised;
  s.judged = !h.liar_ever && !h.victim && t >= h.unfair_until;
  s.epoch = now.epoch;
  const auto since = static_cast<double>(h.clock.Local(t) - now.anchor_ns);
  s.fleet_ns = h.clock.ErrorNs(t) + static_cast<double>(kLocalEpochNs + now.offset_ns) + now.slope_ppb * 1e-9 * since;
  s.est_ns = static_cast<double>(now.error_est_ns);
  s.bound_ns = static_cast<double>(now.bound_ns) + AgreementOptions().max_drift_ppb * 1e-9 * std::abs(since);
  const FleetClaim claim = agreement.Claim();
  s.timeline = claim.timeline;
  if (!fleet_.scenario.anchors
           .empty()) {  // as a reader has it: moved on along its slope, but with the bound that TaiTime promises
    const TaiTime tai = agreement.tai();
    s.tai_known = tai.known;
    s.tai_error_ns = s.fleet_ns + static_cast<double>(tai.offset_ns - kTaiEpochNs) + tai.slope_ppb * 1e-9 * since;
    s.tai_bound_ns = static_cast<double>(tai.bound_ns) + TaiTime::kWanderPpb * 1e-9 * std::abs(since);
  }
  for (int n = 0; n < fleet_.scenario.nics.per_host; ++n) {
    s.nic_ns.push_back(s.fleet_ns + links_->NicErrorNs(host, n, t));
  }
  return s;
}

void World::MeasureAll(TrueNs t) {
  links_->AdvanceTo(t);
  std::vector<HostSample> samples;
  samples.reserve(nodes_.size());
  for (uint32_t i = 0; i < nodes_.size(); ++i) samples.push_back(Sample(i, t));
  measure_.Add(t, samples);
  const auto last_quarter = static_cast<TrueNs>(0.75 * fleet_.scenario.seconds * kSecond);
  if (t >= last_quarter && measured_++ % kVerdictsEvery == 0) CountVerdicts();
}

void World::CountAnchorVerdicts(const Agreement& agreement) {
  for (const AnchorSpec& a : fleet_.scenario.anchors) {
    if (!a.bad) continue;
    for (const int bad : a.hosts) {
      const Node& node = nodes_[static_cast<size_t>(bad)];
      if (node.agreement == nullptr) continue;
      const uint64_t id = node.agreement->Claim().host_id;
      const auto& all = agreement.anchors();
      measure_.AddAnchorVerdict(std::any_of(all.begin(), all.end(), [&](const AnchorVerdict& v) {
        return v.anchor_id == id && v.reason == Reason::kFalseTicker;
      }));
    }
  }
}

// Who is named, by honest hosts.
void World::CountVerdicts() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Host& h = fleet_.hosts[i];
    if (!h.up || h.liar_ever || h.victim || nodes_[i].agreement == nullptr) continue;
    CountAnchorVerdicts(*nodes_[i].agreement);
    for (const NeighbourVerdict& v : nodes_[i].agreement->verdicts()) {
      const auto it = by_name_.find(v.name);
      if (it == by_name_.end()) continue;
      const Host& about = fleet_.hosts[it->second];
      if (!about.up || about.victim) continue;
      measure_.AddVerdict(about.lie.on, v.reason == Reason::kFalseTicker);
    }
  }
}

}  // namespace cw::sync::sim
