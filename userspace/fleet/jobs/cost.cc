// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/jobs/jobs.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr int64_t kFoundLateNs = 60'000'000'000;  // a finding may open so much after what it explains
constexpr double kLongestNs = 86'400e9;           // nobody waits for a collective for longer
constexpr int kMostGpus = 100'000;

double Tamed(double ns) { return std::isfinite(ns) ? std::clamp(ns, 0.0, kLongestNs) : 0; }

const pb::CollectiveQp* HeldQp(const pb::Collective& c) {
  for (const pb::CollectivePeer& op : c.peers()) {
    for (const pb::CollectiveQp& qp : op.qps()) {
      if (qp.qpn() == c.held_qpn()) return &qp;
    }
  }
  return nullptr;
}

// When it began: told as an age, which is believed as far as it can be true.
int64_t BeginOf(const pb::Collective& c, double took_ns, int64_t from_ns, int64_t to_ns) {
  const auto first = static_cast<int64_t>(static_cast<double>(from_ns) - took_ns);
  const auto last = static_cast<int64_t>(static_cast<double>(to_ns) - took_ns);
  const double age_ns = Tamed(c.enqueued_ago_s() * 1e9) - Tamed(c.queued_ns());
  return std::clamp(to_ns - static_cast<int64_t>(age_ns), first, last);
}

double AvoidableNs(const pb::Collective& c, int64_t begin_ns, double took_ns, double lost_ns, const DryMoves& decided) {
  const pb::CollectiveQp* qp = c.network() ? HeldQp(c) : nullptr;
  if (qp == nullptr) return 0;
  const int64_t end_ns = begin_ns + static_cast<int64_t>(took_ns);
  return std::min(lost_ns,
                  decided.SavedNs({.id = qp->flow(), .pair = qp->pair(), .slot = qp->slot()}, begin_ns, end_ns));
}

constexpr int kExplainsAll = 2;

// How well such a finding explains that the network holds a queue pair back; 0: not at all.
int Explains(Cause cause) {
  switch (cause) {
    case Cause::kClock:
    case Cause::kNotNetwork:
      return 0;
    case Cause::kSlowSender:
    case Cause::kSlowReceiver:
    case Cause::kConfiguration:
    case Cause::kSwapped:
    case Cause::kSla:
    case Cause::kAgentGone:
      return 1;  // there without harm, too
    default:
      return kExplainsAll;
  }
}

JobReach ReachOfQp(const std::string& host, const pb::CollectiveQp& qp) {
  JobReach reach;
  reach.hosts = {host};
  if (!qp.peer().empty()) reach.hosts.insert(qp.peer());
  for (const std::string& hop : qp.hops()) {
    if (const absl::StatusOr<Addr> port = Addr::Parse(hop); port.ok()) reach.ports.insert(*port);
  }
  return reach;
}

std::vector<Finding> ByStart(std::vector<Finding> findings) {
  std::sort(findings.begin(), findings.end(), [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  return findings;
}

}  // namespace

CostBook::CostBook(std::vector<Finding> findings, Topology topology)
    : findings_(ByStart(std::move(findings))), topology_(std::move(topology)) {}

CostBook::Place CostBook::PlaceOf(const std::string& host, const pb::Collective& c, int64_t begin_ns,
                                  int64_t end_ns) const {
  if (!c.network()) return {"not the network", 0, false};
  const pb::CollectiveQp* qp = HeldQp(c);
  if (qp == nullptr) return {"the network"};
  const JobReach reach = ReachOfQp(host, *qp);
  const Finding* found = nullptr;
  for (const Finding& finding : findings_) {
    if (finding.start_ns > end_ns + kFoundLateNs) break;
    if (Explains(finding.cause) <= (found == nullptr ? 0 : Explains(found->cause))) continue;
    if (finding.end_ns != 0 && finding.end_ns < begin_ns) continue;
    // Which ports a switch had then nobody may know any more; whom it affected its finding says.
    const bool of_job = absl::StartsWith(finding.scope, "switch ") && !c.label().empty() &&
                        std::find(finding.jobs.begin(), finding.jobs.end(), c.label()) != finding.jobs.end();
    if (of_job || Crosses(finding, reach, topology_)) found = &finding;
    if (found != nullptr && Explains(found->cause) == kExplainsAll) break;
  }
  if (found != nullptr) return {absl::StrCat(std::string(CauseName(found->cause)), ": ", found->scope), found->id};
  std::string way = absl::StrCat(host, " to ", qp->peer().empty() ? qp->flow() : qp->peer());
  if (qp->hops_size() > 0) absl::StrAppend(&way, " by ", absl::StrJoin(qp->hops(), " "));
  return {CutUtf8(way, kMostWhere)};
}

bool CostBook::Add(const std::string& host, const pb::Collective& c, int64_t from_ns, int64_t to_ns,
                   const DryMoves& decided) {
  const double took_ns = Tamed(c.duration_ns()), lost_ns = took_ns - std::min(Tamed(c.usual_ns()), took_ns);
  if (lost_ns <= 0) return true;
  const bool all = c.peer() < 0;
  const int64_t begin_ns = from_ns - static_cast<int64_t>(took_ns);
  const Name name{c.job_id(),
                  c.function(),
                  c.seq(),
                  c.peer(),
                  all ? "" : host,
                  all ? 0 : c.pid(),
                  all ? 0 : begin_ns / 1'000'000'000};
  auto at = worst_.find(name);
  if (at == worst_.end() && worst_.size() >= kMostCollectives) return false;
  if (at == worst_.end()) at = worst_.emplace(name, Lost{}).first;
  // Another rank's agent may be the one that decided.
  const double avoidable_ns =
      std::max(at->second.avoidable_ns, AvoidableNs(c, BeginOf(c, took_ns, from_ns, to_ns), took_ns, lost_ns, decided));
  at->second.avoidable_ns = std::min(avoidable_ns, std::max(lost_ns, at->second.ns));
  if (lost_ns <= at->second.ns) return true;
  at->second = {.ns = lost_ns,
                .avoidable_ns = avoidable_ns,
                .gpus = all ? std::clamp(c.ranks(), 1, kMostGpus) : 1,
                .job = CutUtf8(c.label().empty() ? c.job_id() : c.label(), kMostWhere),
                .place = PlaceOf(host, c, begin_ns, to_ns)};
  return true;
}

pb::FleetCostReply CostBook::Sum() const {
  std::map<std::pair<std::string, Place>, pb::FleetCost> sums;  // by job and place
  for (const auto& [name, lost] : worst_) {
    pb::FleetCost& row = sums[{lost.job, lost.place}];
    row.set_collectives(row.collectives() + 1);
    row.set_lost_s(row.lost_s() + lost.ns / 1e9);
    row.set_gpu_hours(row.gpu_hours() + lost.ns * lost.gpus / 3600e9);
    // Where another rank's process took longer, the network would have saved nothing.
    const double avoidable_ns = lost.place.network ? lost.avoidable_ns : 0;
    row.set_avoidable_gpu_hours(row.avoidable_gpu_hours() + avoidable_ns * lost.gpus / 3600e9);
  }
  std::vector<pb::FleetCost> rows;
  for (auto& [key, row] : sums) {
    row.set_job(key.first);
    row.set_where(key.second.where);
    row.set_network(key.second.network);
    if (key.second.finding != 0) row.set_finding(IdText(key.second.finding));
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.gpu_hours() > b.gpu_hours(); });
  pb::FleetCostReply reply;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i < kMostRows) {
      *reply.add_costs() = std::move(rows[i]);
      continue;
    }
    if (i == kMostRows) reply.add_costs()->set_where("all others");
    pb::FleetCost& others = *reply.mutable_costs(static_cast<int>(kMostRows));
    others.set_network(others.network() || rows[i].network());
    others.set_collectives(others.collectives() + rows[i].collectives());
    others.set_lost_s(others.lost_s() + rows[i].lost_s());
    others.set_gpu_hours(others.gpu_hours() + rows[i].gpu_hours());
    others.set_avoidable_gpu_hours(others.avoidable_gpu_hours() + rows[i].avoidable_gpu_hours());
  }
  return reply;
}

}  // namespace cw::fleet
