// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/cost.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr int64_t kFoundLateNs = 60'000'000'000;  // a finding may open so much after what it explains
constexpr char kNotTheNetwork[] = "not the network";

// Communicator, function, its number, the peer of a send or receive, and the process where that has no number.
using OneOf = std::tuple<std::string, std::string, uint64_t, int, uint32_t>;

OneOf NameOf(const pb::Collective& c) {
  return {c.job_id(), c.function(), c.seq(), c.peer(), c.peer() < 0 ? 0 : c.pid()};
}

double LostNs(const pb::Collective& c) { return std::max(0.0, c.duration_ns() - c.usual_ns()); }

const pb::CollectiveQp* HeldQp(const pb::Collective& c) {
  for (const pb::CollectivePeer& op : c.peers()) {
    for (const pb::CollectiveQp& qp : op.qps()) {
      if (qp.qpn() == c.held_qpn()) return &qp;
    }
  }
  return nullptr;
}

struct Place {
  std::string where;
  uint64_t finding = 0;  // 0: none
  bool operator<(const Place& other) const { return std::tie(where, finding) < std::tie(other.where, other.finding); }
};

JobReach ReachOfQp(const std::string& host, const pb::CollectiveQp& qp) {
  JobReach reach;
  reach.hosts = {host};
  if (!qp.peer().empty()) reach.hosts.insert(qp.peer());
  for (const std::string& hop : qp.hops()) {
    if (const absl::StatusOr<Addr> port = Addr::Parse(hop); port.ok()) reach.ports.insert(*port);
  }
  return reach;
}

Place PlaceOf(const ToldCollective& told, absl::Span<const Finding> findings, const Topology& topology) {
  const pb::Collective& c = *told.what;
  if (!c.network()) return {kNotTheNetwork};
  const pb::CollectiveQp* qp = HeldQp(c);
  if (qp == nullptr) return {"the network"};
  const JobReach reach = ReachOfQp(told.host, *qp);
  const int64_t begin_ns = told.time_ns - static_cast<int64_t>(c.duration_ns());
  for (const Finding& finding : findings) {
    const bool then =
        finding.start_ns <= told.time_ns + kFoundLateNs && (finding.end_ns == 0 || finding.end_ns >= begin_ns);
    if (then && Crosses(finding, reach, topology))
      return {absl::StrCat(std::string(CauseName(finding.cause)), ": ", finding.scope), finding.id};
  }
  std::string way = absl::StrCat(told.host, " to ", qp->peer().empty() ? qp->flow() : qp->peer());
  if (qp->hops_size() > 0) absl::StrAppend(&way, " by ", absl::StrJoin(qp->hops(), " "));
  return {std::move(way)};
}

struct Sum {
  uint64_t collectives = 0;
  double lost_ns = 0, gpu_ns = 0;
};

}  // namespace

pb::FleetCostReply CostOf(absl::Span<const ToldCollective> told, absl::Span<const Finding> findings,
                          const Topology& topology) {
  std::map<OneOf, const ToldCollective*> worst;
  for (const ToldCollective& one : told) {
    const ToldCollective*& known = worst[NameOf(*one.what)];
    if (known == nullptr || LostNs(*one.what) > LostNs(*known->what)) known = &one;
  }
  std::map<std::pair<std::string, Place>, Sum> sums;  // by job and place
  for (const auto& [name, one] : worst) {
    const pb::Collective& c = *one->what;
    Sum& sum = sums[{c.label().empty() ? c.job_id() : c.label(), PlaceOf(*one, findings, topology)}];
    ++sum.collectives;
    sum.lost_ns += LostNs(c);
    sum.gpu_ns += LostNs(c) * (c.peer() < 0 ? std::max(c.ranks(), 1) : 2);
  }
  pb::FleetCostReply reply;
  for (const auto& [key, sum] : sums) {
    pb::FleetCost& row = *reply.add_costs();
    row.set_job(key.first);
    row.set_where(key.second.where);
    if (key.second.finding != 0) row.set_finding(IdText(key.second.finding));
    row.set_network(key.second.where != kNotTheNetwork);
    row.set_collectives(sum.collectives);
    row.set_lost_s(sum.lost_ns / 1e9);
    row.set_gpu_hours(sum.gpu_ns / 3600e9);
  }
  std::stable_sort(reply.mutable_costs()->begin(), reply.mutable_costs()->end(),
                   [](const auto& a, const auto& b) { return a.gpu_hours() > b.gpu_hours(); });
  return reply;
}

}  // namespace cw::fleet
