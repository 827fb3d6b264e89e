// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

struct PairSum {
  uint32_t flows = 0;
  double bytes_per_s = 0;
  uint64_t retransmits = 0, cnps = 0;
  PackedSketch delay;
};

struct LinkSum {
  uint32_t flows = 0;
  double bytes_per_s = 0;
};

struct JobSums {
  std::set<std::string> hosts;
  std::map<std::pair<std::string, std::string>, PairSum> pairs;
  std::map<LinkId, LinkSum> links;
};

std::string PeerOf(const FlowName& flow) { return flow.peer.empty() ? flow.remote.ToString() : flow.peer; }

// Those between two ports that are known.
void AddWay(const HostWork::Flow& flow, double bytes_per_s, std::map<LinkId, LinkSum>& links) {
  if (flow.hops == nullptr) return;
  Addr before = flow.sample->name.local;
  for (size_t i = 0; i <= flow.hops->size(); ++i) {
    const Addr& next = i == flow.hops->size() ? flow.sample->name.remote : (*flow.hops)[i];
    if (!before.is_zero() && !next.is_zero()) {
      LinkSum& link = links[{before, next}];
      ++link.flows;
      link.bytes_per_s += bytes_per_s;
    }
    before = next;
  }
}

JobSums SumUp(const JoinedJob& job, absl::Span<const HostWork> hosts, pb::FleetJob& out) {
  JobSums sums;
  for (const JoinedJob::Place& place : job.flows) {
    const HostWork& work = hosts[place.host];
    const HostWork::Flow& flow = work.flows[place.index];
    const FlowSample& s = *flow.sample;
    const double bytes_per_s = work.flows_s > 0 ? static_cast<double>(s.bytes) / work.flows_s : 0;
    sums.hosts.insert(work.host);
    if (!s.name.peer.empty()) sums.hosts.insert(s.name.peer);
    PairSum& pair = sums.pairs[{work.host, PeerOf(s.name)}];
    ++pair.flows;
    pair.bytes_per_s += bytes_per_s;
    pair.retransmits += s.retransmits;
    pair.cnps += s.cnps;
    pair.delay.Merge(s.delay);
    AddWay(flow, bytes_per_s, sums.links);
    out.set_flows(out.flows() + 1);
    out.set_bytes_per_s(out.bytes_per_s() + bytes_per_s);
    out.set_retransmits(out.retransmits() + s.retransmits);
    out.set_cnps(out.cnps() + s.cnps);
  }
  return sums;
}

void CountRanks(const JoinedJob& job, absl::Span<const HostWork> hosts, JobSums& sums, pb::FleetJob& out) {
  std::map<std::string, std::pair<int, std::set<int>>> by_id;  // ranks in all, and those that are known
  std::vector<double> bus;
  bool alive = job.ranks.empty();
  for (const JoinedJob::Place& place : job.ranks) {
    const pb::Job& rank = *hosts[place.host].ranks[place.index].job;
    sums.hosts.insert(hosts[place.host].host);
    auto& [ranks, known] = by_id[rank.id()];
    ranks = std::max(ranks, rank.ranks());
    known.insert(rank.rank());
    alive = alive || !rank.ended();
    if (rank.bus_bytes_per_s() > 0) bus.push_back(rank.bus_bytes_per_s());
    out.set_collectives_per_s(std::max(out.collectives_per_s(), rank.collectives_per_s()));
  }
  for (const auto& [id, ranks] : by_id) {
    if (static_cast<uint32_t>(ranks.first) <= out.ranks()) continue;
    out.set_ranks(static_cast<uint32_t>(ranks.first));
    out.set_ranks_known(static_cast<uint32_t>(ranks.second.size()));
  }
  if (!bus.empty()) {
    const auto middle = bus.begin() + static_cast<std::ptrdiff_t>(bus.size() / 2);
    std::nth_element(bus.begin(), middle, bus.end());
    out.set_bus_bytes_per_s(*middle);
  }
  out.set_ended(!alive);
}

template <typename Part>
void MostFirst(google::protobuf::RepeatedPtrField<Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.bytes_per_s() > b.bytes_per_s(); });
}

void AddParts(const JobSums& sums, pb::FleetJob& out) {
  for (const auto& [ends, sum] : sums.pairs) {
    pb::FleetJobPair& pair = *out.add_pairs();
    pair.set_from(ends.first);
    pair.set_to(ends.second);
    pair.set_flows(sum.flows);
    pair.set_bytes_per_s(sum.bytes_per_s);
    pair.set_retransmits(sum.retransmits);
    pair.set_cnps(sum.cnps);
    pair.set_delay_samples(sum.delay.Count());
    pair.set_delay_p50_ns(static_cast<uint64_t>(sum.delay.QuantileNs(0.5)));
    pair.set_delay_p99_ns(static_cast<uint64_t>(sum.delay.QuantileNs(0.99)));
  }
  for (const auto& [ends, sum] : sums.links) {
    pb::FleetJobLink& link = *out.add_links();
    link.mutable_link()->set_from(ends.first.ToString());
    link.mutable_link()->set_to(ends.second.ToString());
    link.set_flows(sum.flows);
    link.set_bytes_per_s(sum.bytes_per_s);
  }
  MostFirst(*out.mutable_pairs());
  MostFirst(*out.mutable_links());
}

void AddRanks(const JoinedJob& job, absl::Span<const HostWork> hosts, pb::FleetJob& out) {
  for (const JoinedJob::Place& place : job.ranks) {
    pb::FleetRank& rank = *out.add_rank_list();
    rank.set_host(hosts[place.host].host);
    rank.set_time_ns(hosts[place.host].ranks[place.index].time_ns);
    *rank.mutable_job() = *hosts[place.host].ranks[place.index].job;
  }
  std::stable_sort(out.mutable_rank_list()->begin(), out.mutable_rank_list()->end(),
                   [](const pb::FleetRank& a, const pb::FleetRank& b) {
                     return std::pair(a.job().id(), a.job().rank()) < std::pair(b.job().id(), b.job().rank());
                   });
}

}  // namespace

pb::FleetJob DescribeJob(const JoinedJob& job, absl::Span<const HostWork> hosts, bool whole) {
  pb::FleetJob out;
  out.set_name(job.name);
  for (const std::string& id : job.ids) out.add_ids(id);
  JobSums sums = SumUp(job, hosts, out);
  CountRanks(job, hosts, sums, out);
  for (const std::string& host : sums.hosts) out.add_hosts(host);
  if (!whole) return out;
  AddParts(sums, out);
  AddRanks(job, hosts, out);
  return out;
}

}  // namespace cw::fleet
