// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/live/host_paths.h"

namespace cw::fleet {
namespace {

// Large hosts' reports come in several batches.
constexpr int64_t kSameReportNs = 15'000'000'000;
constexpr absl::Duration kRefusedLately = absl::Seconds(30);

bool IsOld(const LiveHost& live, const PathSample& sample) { return live.newest_ns - sample.time_ns > kSameReportNs; }

}  // namespace

// Of a path that answers no more than a second while its peers answer, its host's verdict is a matter of rounds.
PathEvidence::State EvidenceOf(const PathSample& sample) {
  switch (sample.state) {
    case PathState::kDead:
      return PathEvidence::State::kDead;
    case PathState::kPaused:
      return PathEvidence::State::kPaused;
    case PathState::kSilent:
      return PathEvidence::State::kSilent;
    case PathState::kNew:
      return sample.silent_ms > 0 ? PathEvidence::State::kNew : PathEvidence::State::kNoWord;
    case PathState::kUp:
    case PathState::kSuspect:
      break;
  }
  return sample.silent_ms > 0 ? PathEvidence::State::kSilent : PathEvidence::State::kAlive;
}

HostEvidence HostEvidenceOf(const LiveHost& live, absl::Time now) {
  HostEvidence host{.name = live.host, .connected = live.connected, .run = live.run};
  host.last_seen_ns = absl::ToUnixNanos(live.last_seen);
  host.began_ns = live.run_began == absl::InfinitePast() ? 0 : absl::ToUnixNanos(live.run_began);
  host.newest_ns = live.newest_ns;
  host.clock_known = live.clock_known;
  host.clock_synced = live.clock_synced;
  host.clock_bound_ns = live.clock_bound_ns;
  for (const LiveHost::Nic& nic : live.nics)
    host.nics.push_back({nic.name, nic.address, nic.rail, nic.mtu, nic.roce_mtu, nic.rate_bps, nic.trouble});
  host.late_share = live.late_share;
  if (now - live.refused_at < kRefusedLately) host.refusal = live.last_refusal;
  return host;
}

std::vector<PathEvidence> PathEvidenceOf(const LiveHost& live) {
  std::vector<PathEvidence> paths;
  for (const auto& [key, sample] : live.paths) {
    if (key.reverse || IsOld(live, sample)) continue;
    paths.push_back({.source = key.local,
                     .destination = key.remote,
                     .udp_port = key.udp_port,
                     .hops_id = sample.hops,
                     .state = EvidenceOf(sample),
                     .silent_ns = int64_t{sample.silent_ms} * 1'000'000,
                     .largest_bytes = sample.largest_bytes,
                     .full_size = sample.full_size,
                     .sent = sample.sent,
                     .lost = sample.lost,
                     .queue_ns = sample.queue.QuantileNs(0.5),
                     .base_ns = static_cast<double>(sample.base_ns),
                     .time_ns = sample.time_ns});
  }
  return paths;
}

std::vector<Trace> TracesOf(const std::vector<PathEvidence>& paths) {
  std::vector<Trace> traces;
  for (const PathEvidence& path : paths) {
    if (path.hops != nullptr) traces.push_back({path.source, path.destination, *path.hops, path.time_ns});
  }
  return traces;
}

std::vector<Arrival> ArrivalsOf(const LiveHost& live) {
  std::vector<Arrival> arrivals;
  for (const auto& [key, sample] : live.paths) {
    if (!key.reverse || !sample.heard || IsOld(live, sample)) continue;
    const Arrival arrival{.from = key.remote, .to = key.local};
    if (arrivals.empty() || arrivals.back().from != arrival.from || arrivals.back().to != arrival.to)
      arrivals.push_back(arrival);
  }
  return arrivals;
}

}  // namespace cw::fleet
