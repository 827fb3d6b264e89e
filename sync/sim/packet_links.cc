// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/packet_links.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cw::sync::sim {
namespace {

constexpr uint64_t kPacketLinkStream = 1'000'000, kQueueStream = 2'000'000, kTieStream = 3'000'000;
constexpr TrueNs kTurnRoundNs = 200;          // between T2 and T3
constexpr double kPacketWaitNs = 500'000;     // a message waits for its agent up to so long
constexpr TrueNs kStartSpreadNs = 8'000'000;  // so that not all hosts probe at once

}  // namespace

std::optional<CrossStamp> PacketLinks::Tie::Read() {
  const double half = spec.read_ns / 2 + random.Exponential(spec.read_ns / 10);
  const double off = std::clamp(random.Normal(spec.read_noise_ns), -half, half);
  const auto middle = now + static_cast<TrueNs>(half + off);
  const auto after = now + static_cast<TrueNs>(2 * half);
  return CrossStamp{host.clock.Local(now), clock.Local(middle), host.clock.Local(after)};
}

PacketLinks::PacketLinks(Fleet& fleet) : fleet_(fleet) {
  const SwitchSpec& sw = fleet.scenario.switches;
  for (int q = 0; q < sw.leaves * sw.spines; ++q) {
    for (auto* side : {&up_, &down_}) {
      const uint64_t stream = kQueueStream + queues_.size();
      side->push_back(std::make_shared<Queue>(fleet.scenario.link.queue, Random(fleet.seed, stream)));
      queues_.push_back(side->back());
    }
  }
  links_.reserve(fleet.links.size());
  for (uint32_t id = 0; id < fleet.links.size(); ++id) MakeLink(id);
  MakeTies();
}

// Without switches a direction has a queue of its own.
std::vector<std::shared_ptr<Queue>> PacketLinks::Hops(uint32_t from, uint32_t to, int path) {
  const SwitchSpec& sw = fleet_.scenario.switches;
  if (sw.leaves == 0) {
    const uint64_t stream = kQueueStream + queues_.size();
    queues_.push_back(std::make_shared<Queue>(fleet_.scenario.link.queue, Random(fleet_.seed, stream)));
    return {queues_.back()};
  }
  const auto leaves = static_cast<uint32_t>(sw.leaves), spines = static_cast<uint32_t>(sw.spines);
  const uint32_t a = from % leaves, b = to % leaves;
  if (a == b) return {};
  // The hash of both addresses and the entropy: other pairs take other spines with the same entropy.
  const auto spine = static_cast<uint32_t>(Mix(from * 7919ull + to * 104729ull + static_cast<uint64_t>(path)) % spines);
  return {up_[a * spines + spine], down_[b * spines + spine]};
}

void PacketLinks::MakeLink(uint32_t id) {
  const LinkSpec& spec = fleet_.scenario.link;
  const Link& link = fleet_.links[id];
  links_.emplace_back(Random(fleet_.seed, kPacketLinkStream + id));
  PacketLink& made = links_.back();
  const int first_short[2] = {static_cast<int>(Mix(fleet_.seed + 2 * id) % 64),
                              static_cast<int>(Mix(fleet_.seed + 2 * id + 1) % 64)};
  for (int p = 0; p < spec.paths; ++p) {
    const double asymmetry = made.random.Symmetric(spec.asymmetry_ns) + link.asymmetry_ns;
    for (int end = 0; end < 2; ++end) {
      PathSpec path = spec.path;
      auto hops = Hops(link.host[end], link.host[1 - end], p);
      path.base_ns = link.base_ns + (end == 0 ? asymmetry : -asymmetry) / 2;
      path.base_ns +=
          fleet_.scenario.switches.hop_ns * static_cast<double>(fleet_.scenario.switches.leaves ? hops.size() : 0);
      if ((p + first_short[end]) % spec.paths < spec.short_ways) path.base_ns -= spec.short_ns;
      made.end[end].out.emplace_back(path, std::move(hops), Random(made.random.Next()));
    }
  }
  for (int end = 0; end < 2; ++end) {
    if (fleet_.scenario.nics.per_host > 0) {
      made.nic[end] = static_cast<int>(made.random.Below(static_cast<uint64_t>(fleet_.scenario.nics.per_host)));
    }
    const auto at = static_cast<TrueNs>(made.random.Below(static_cast<uint64_t>(kStartSpreadNs)));
    Push({at, 0, Kind::kProbe, static_cast<uint8_t>(end), 0, id, {}, 0, 0, {}});
  }
}

void PacketLinks::MakeTies() {
  const NicSpec& spec = fleet_.scenario.nics;
  for (Host& host : fleet_.hosts) {
    for (SimClock& clock : host.nics) {
      const auto id = static_cast<uint32_t>(ties_.size());
      ties_.emplace_back(host, clock, spec, Random(fleet_.seed, kTieStream + id));
      Push({static_cast<TrueNs>(id), 0, Kind::kCrossRead, 0, 0, id, {}, 0, 0, {}});
    }
  }
}

void PacketLinks::Push(Happens h) {
  h.order = ++order_;
  events_.push(std::move(h));
}

void PacketLinks::AdvanceTo(TrueNs t) {
  while (!events_.empty() && events_.top().at <= t) {
    const Happens now = events_.top();
    events_.pop();
    switch (now.kind) {
      case Kind::kProbe:
        Probe(now);
        break;
      case Kind::kReply:
      case Kind::kTrips:
        Deliver(now);
        break;
      case Kind::kCrossRead:
        CrossRead(now);
        break;
    }
  }
}

PacketLinks::Tie* PacketLinks::TieOf(uint32_t link, int end) {
  const int nic = links_[link].nic[end];
  if (nic < 0) return nullptr;
  const size_t host = fleet_.links[link].host[end];
  return &ties_[host * static_cast<size_t>(fleet_.scenario.nics.per_host) + static_cast<size_t>(nic)];
}

// By the host's clock; where a NIC stamps, by what the host makes of the NIC's.
int64_t PacketLinks::Stamp(uint32_t link, int end, TrueNs t) {
  const Tie* tie = TieOf(link, end);
  return tie == nullptr ? HostAt(link, end).clock.Local(t) : tie->tie.ToHostNs(tie->clock.Local(t));
}

double PacketLinks::ExtraNs(uint32_t link, int from_end, TrueNs t) const {
  const Link& l = fleet_.links[link];
  return l.added_towards == 1 - from_end ? l.AddedNs(t) : 0;
}

void PacketLinks::Probe(const Happens& now) {
  const LinkSpec& spec = fleet_.scenario.link;
  PacketLink& link = links_[now.index];
  const int from = now.end, to = 1 - from;
  Happens next = now;
  next.at += static_cast<TrueNs>(kSecond / spec.probes_per_s);
  Push(std::move(next));
  if (!fleet_.Connected(fleet_.links[now.index])) return;
  if (!CanStamp(now.index, from) || !CanStamp(now.index, to)) return;
  End& end = link.end[from];
  const size_t paths = end.out.size(), path = end.sent % paths;
  const size_t back_path = spec.replies_in_turn ? (path + end.sent / paths) % paths : path;
  ++end.sent;
  if (link.random.Chance(spec.loss)) return;
  const TrueNs t1 = now.at;
  const TrueNs t2 = t1 + static_cast<TrueNs>(end.out[path].DelayNs(t1, ExtraNs(now.index, from, t1)));
  const TrueNs t3 = t2 + kTurnRoundNs;
  const double back = link.end[to].out[back_path].DelayNs(t3, ExtraNs(now.index, to, t3)) - 2 * spec.stack_ns;
  if (link.random.Chance(spec.loss)) return;
  const TrueNs t4 = t3 + static_cast<TrueNs>(std::max(1.0, back));
  Push({t4,
        0,
        Kind::kReply,
        now.end,
        HostAt(now.index, from).boots,
        now.index,
        {Stamp(now.index, from, t1), Stamp(now.index, to, t2), Stamp(now.index, to, t3), Stamp(now.index, from, t4)},
        static_cast<uint8_t>(path),
        static_cast<uint8_t>(back_path),
        {}});
}

void PacketLinks::Deliver(const Happens& now) {
  const Host& host = HostAt(now.index, now.end);
  if (!host.up || host.boots != now.boots) return;
  End& end = links_[now.index].end[now.end];
  PairEstimator& estimator = end.estimator;
  if (now.kind == Kind::kReply) {
    const Trip& trip = now.trip;
    const WayChoice before = end.paths.choice();
    const bool admitted =
        end.paths.Admit(trip.t4_ns, now.there, now.back, trip.OutNs() - estimator.OffsetAt(trip.t1_ns),
                        trip.BackNs() + estimator.OffsetAt(trip.t4_ns), end.settled);
    if (!end.paths.choice().SameWays(before)) estimator.PathsChanged();
    if (!admitted) return;
    estimator.AddTrip(trip, fleet_.scenario.link.nic_stamps ? StampKind::kHardware : StampKind::kSoftware);
  } else {
    for (const Trip& trip : now.trips) estimator.AddRemoteProbe(trip);
  }
}

void PacketLinks::CrossRead(const Happens& now) {
  Tie& tie = ties_[now.index];
  tie.now = now.at;
  if (const auto read = tie.Read()) tie.tie.Add(*read);
  tie.ready = tie.tie.At(tie.host.clock.Local(now.at)).state != SyncState::kUnknown;
  Happens next = now;
  next.at += static_cast<TrueNs>(kSecond / fleet_.scenario.nics.reads_per_s);
  Push(std::move(next));
}

Estimate PacketLinks::View(uint32_t link, int end, TrueNs t) {
  End& at = links_[link].end[end];
  const Estimate estimate = at.estimator.At(HostAt(link, end).clock.Local(t));
  if (estimate.epoch != at.epoch) at.paths.Reset();
  at.epoch = estimate.epoch;
  at.settled = estimate.settled;
  return estimate;
}

// The fastest of our probes go to the peer, in the message that carries the claim.
void PacketLinks::Send(uint32_t link, int end, TrueNs t) {
  PacketLink& l = links_[link];
  auto trips = l.end[end].estimator.TakeOutboundTrips();
  if (trips.empty() || !fleet_.Connected(fleet_.links[link]) || l.random.Chance(fleet_.scenario.link.loss)) return;
  const auto at = t + static_cast<TrueNs>(fleet_.links[link].base_ns + l.random.Uniform() * kPacketWaitNs);
  Push({at,
        0,
        Kind::kTrips,
        static_cast<uint8_t>(1 - end),
        HostAt(link, 1 - end).boots,
        link,
        {},
        0,
        0,
        std::move(trips)});
}

void PacketLinks::Forget(uint32_t host, TrueNs) {
  for (const Peer& p : fleet_.hosts[host].peers) {
    End& end = links_[p.link].end[p.end];
    end.estimator = PairEstimator();
    end.paths.Reset();
    end.settled = false;
  }
}

void PacketLinks::Changed(TrueNs) {
  for (auto& q : queues_) q->set_load(fleet_.load);
}

double PacketLinks::NicErrorNs(uint32_t host, int nic, TrueNs t) {
  const size_t id = host * static_cast<size_t>(fleet_.scenario.nics.per_host) + static_cast<size_t>(nic);
  const Host& h = fleet_.hosts[host];
  const int64_t read = ties_[id].tie.ToHostNs(ties_[id].clock.Local(t));
  return static_cast<double>(read - kLocalEpochNs - t) - h.clock.ErrorNs(t);
}

std::unique_ptr<Links> MakePacketLinks(Fleet& fleet) { return std::make_unique<PacketLinks>(fleet); }

}  // namespace cw::sync::sim
