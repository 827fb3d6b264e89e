// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "userspace/fleet/query/query.h"
#include "userspace/fleet/topology/topology.h"
#include "userspace/fleet/topology/wiring.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

Trace TraceOf(const SeenPath& path) {
  const PathKey& key = path.sample.key;
  return {.source = key.reverse ? key.remote : key.local,
          .destination = key.reverse ? key.local : key.remote,
          .hops = *path.hops,
          .time_ns = path.sample.time_ns,
          .host = absl::HashOf(path.host) | 1};
}

// What all paths over a link met together.
struct Load {
  uint32_t paths = 0, dead = 0;
  uint64_t sent = 0, lost = 0;
  std::vector<uint64_t> queue;  // samples by PackedSketch's index: cheaper than merging sketches one by one
  uint64_t queue_max_ns = 0;

  void Add(const PathSample& sample) {
    ++paths;
    dead += sample.state == PathState::kDead || sample.state == PathState::kSilent;
    sent += sample.sent;
    lost += sample.lost;
    if (sample.queue.empty()) return;
    if (queue.size() <= sample.queue.buckets.back().index) queue.resize(sample.queue.buckets.back().index + 1);
    for (const PackedSketch::Bucket& bucket : sample.queue.buckets) queue[bucket.index] += bucket.count;
    queue_max_ns = std::max(queue_max_ns, sample.queue.max_ns);
  }
  PackedSketch Queue() const {
    PackedSketch sum{.buckets = {}, .max_ns = queue_max_ns};
    for (uint32_t index = 0; index < queue.size(); ++index) {
      if (queue[index] > 0)
        sum.buckets.push_back({index, static_cast<uint32_t>(std::min<uint64_t>(queue[index], UINT32_MAX))});
    }
    return sum;
  }
};

std::vector<Load> LoadsOf(const Topology& topology, const std::vector<SeenPath>& paths) {
  absl::flat_hash_map<std::pair<Addr, Addr>, size_t> link_of;
  for (size_t i = 0; i < topology.links.size(); ++i) {
    for (const auto& id : topology.links[i].ids) link_of[id] = i;
  }
  std::vector<Load> loads(topology.links.size());
  for (const SeenPath& path : paths) {
    if (path.hops == nullptr) continue;
    const Trace trace = TraceOf(path);
    Addr before = trace.source;
    const auto cross = [&](const Addr& end) {
      const auto link = link_of.find({before, end});
      if (link != link_of.end()) loads[link->second].Add(path.sample);
      before = end;
    };
    for (const Addr& hop : trace.hops) cross(hop);
    cross(trace.destination);
  }
  return loads;
}

std::string EndName(const Topology& topology, int index, const Addr& nic) {
  return index < 0 ? nic.ToString() : topology.switches[static_cast<size_t>(index)].name;
}

std::vector<Trace> TracesOf(const std::vector<SeenPath>& paths) {
  std::vector<Trace> traces;
  for (const SeenPath& path : paths) {
    if (path.hops != nullptr) traces.push_back(TraceOf(path));
  }
  return traces;
}

}  // namespace

std::vector<std::vector<std::string>> SwitchesNoHostSplits(const std::vector<SeenPath>& paths, const FleetFile& file) {
  std::vector<Trace> traces;  // of senders alone: with the others' a host could speak for its peers' NICs
  for (const SeenPath& path : paths) {
    if (path.hops != nullptr && !path.sample.key.reverse) traces.push_back(TraceOf(path));
  }
  std::vector<std::vector<std::string>> switches;
  for (const Switch& s : BuildTopology(traces, file, Split::kBySeveral).switches) {
    std::vector<std::string>& addresses = switches.emplace_back();
    for (const Addr& address : s.addresses) addresses.push_back(address.ToString());
  }
  return switches;
}

pb::FleetTopologyReply MakeTopologyReply(const std::vector<SeenPath>& paths, const FleetFile& file) {
  const Topology topology = BuildTopology(TracesOf(paths), file);
  pb::FleetTopologyReply reply;
  for (const Switch& s : topology.switches) {
    pb::FleetSwitch& out = *reply.add_switches();
    out.set_name(s.name);
    out.set_named(s.named);
    for (const Addr& address : s.addresses) out.add_addresses(address.ToString());
    out.set_tier(static_cast<uint32_t>(s.tier));
    out.set_rack(s.rack);
    out.set_rail(s.rail);
    out.set_plane(static_cast<uint32_t>(s.plane));
  }
  const std::vector<Load> loads = LoadsOf(topology, paths);
  for (size_t i = 0; i < topology.links.size(); ++i) {
    const TopologyLink& link = topology.links[i];
    pb::FleetLink& out = *reply.add_links();
    out.set_from(EndName(topology, link.from, link.from_nic));
    out.set_to(EndName(topology, link.to, link.to_nic));
    out.set_port(link.port.ToString());
    out.set_paths(loads[i].paths);
    out.set_dead(loads[i].dead);
    out.set_sent(loads[i].sent);
    out.set_lost(loads[i].lost);
    out.set_queue_p99_ns(static_cast<uint64_t>(loads[i].Queue().QuantileNs(0.99)));
  }
  const WiringReport wiring = CompareWiring(topology, file);
  for (const Miswiring& fault : wiring.faults) reply.add_miswirings(fault.text);
  for (const std::string& conflict : topology.conflicts) reply.add_conflicts(conflict);
  reply.set_silent_hops(topology.silent_hops);
  reply.set_cables_right(static_cast<uint32_t>(wiring.right));
  reply.set_cables_not_seen(static_cast<uint32_t>(wiring.not_seen));
  return reply;
}

}  // namespace cw::fleet
