// SPDX-License-Identifier: Apache-2.0
//
// May a host take a place in a job: what is known of both, for JudgeFit.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/query/jobs_query.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

struct Known {
  FitHost host;
  std::vector<PathSample> paths;  // forward ones, to NICs that were looked for
};

double P99Of(const PathSample& sample) {
  if (sample.base_ns == 0 || sample.queue.empty()) return 0;
  return static_cast<double>(sample.base_ns) + sample.queue.QuantileNs(0.99);
}

std::set<std::string> HostsOf(const JoinedJob& job, const std::vector<HostWork>& work) {
  std::set<std::string> hosts;
  for (const JoinedJob::Place& place : job.flows) hosts.insert(work[place.host].host);
  for (const JoinedJob::Place& place : job.ranks) {
    if (!work[place.host].ranks[place.index].job->ended()) hosts.insert(work[place.host].host);
  }
  return hosts;
}

}  // namespace

// Two passes over the hosts: whose NICs these are, then the paths between them.
absl::StatusOr<FitQuestion> JobsQuery::AskFit(const pb::FleetFitRequest& request, const std::set<std::string>& in_job,
                                              std::vector<Trace>& traces) {
  std::map<std::string, Known> known;
  std::map<Addr, std::string> host_of;
  each_host_([&](const LiveHost& live) {
    if (live.host != request.host() && !in_job.contains(live.host)) return;
    FitHost& host = known[live.host].host;
    host = {live.host, live.connected, live.clock_known, live.clock_synced, {}};
    for (const LiveHost::Nic& nic : live.nics) {
      host.nics.push_back(nic.address);
      host_of[nic.address] = live.host;
    }
  });
  if (!known.contains(request.host())) return NoSuchHost(request.host());
  each_host_([&](const LiveHost& live) {
    const auto at = known.find(live.host);
    if (at == known.end()) return;
    for (const auto& [key, sample] : live.paths) {
      const bool stale = live.newest_ns - sample.time_ns > absl::ToInt64Nanoseconds(Query::kReach);
      if (key.reverse || stale) continue;
      // Its other paths tell its leaves, too.
      if (host_of.contains(key.remote) || live.host == request.host()) at->second.paths.push_back(sample);
    }
  });
  FitQuestion question{.host = known[request.host()].host, .job = {}, .instead_of = request.instead_of(), .paths = {}};
  for (const auto& [name, host] : known) {
    const absl::StatusOr<std::vector<HopList>> lists = store_.AllHops(name);
    if (!lists.ok() && !absl::IsNotFound(lists.status())) return lists.status();
    std::map<uint64_t, const std::vector<Addr>*> hops;
    if (lists.ok()) {
      for (const HopList& list : *lists) hops[list.id] = &list.hops;
    }
    for (const PathSample& sample : host.paths) {
      const auto way = hops.find(sample.hops);
      if (way != hops.end()) traces.push_back({sample.key.local, sample.key.remote, *way->second, sample.time_ns});
      const auto to = host_of.find(sample.key.remote);
      if (to == host_of.end()) continue;
      question.paths.push_back({.from = name,
                                .to = to->second,
                                .dead = sample.state == PathState::kDead || sample.state == PathState::kSilent,
                                .sent = sample.sent,
                                .lost = sample.lost,
                                .p99_ns = P99Of(sample),
                                .switches = way == hops.end() ? 0 : way->second->size()});
    }
    if (name != request.host() && name != request.instead_of()) question.job.push_back(host.host);
  }
  return question;
}

absl::StatusOr<pb::FleetFitReply> JobsQuery::Fit(const pb::FleetFitRequest& request) {
  if (request.host().empty() || request.job().empty())
    return absl::InvalidArgumentError("which host, and for which job? Such as cwctl fleet fit node17 train");
  absl::StatusOr<View> view = Look("", 0, absl::ZeroDuration());
  if (!view.ok()) return view.status();
  const std::vector<JoinedJob> jobs = JoinJobs(view->work);
  const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const JoinedJob& one) {
    return one.name == request.job() || std::find(one.ids.begin(), one.ids.end(), request.job()) != one.ids.end();
  });
  if (job == jobs.end())
    return absl::NotFoundError(absl::StrCat("no job ", request.job(), " now; see cwctl fleet jobs"));
  std::set<std::string> hosts = HostsOf(*job, view->work);
  if (hosts.contains(request.host()))
    return absl::InvalidArgumentError(
        absl::StrCat(request.host(), " is in ", job->name, " already; ask of a host that is not"));
  // The one that leaves may be down, and tell of no job any more.
  const auto is_leaving = [&](const Seen& seen) { return seen.host == request.instead_of(); };
  if (!request.instead_of().empty()) {
    if (std::none_of(view->hosts.begin(), view->hosts.end(), is_leaving)) return NoSuchHost(request.instead_of());
    hosts.insert(request.instead_of());
  }
  std::vector<Trace> traces;
  const absl::StatusOr<FitQuestion> question = AskFit(request, hosts, traces);
  if (!question.ok()) return question.status();
  const absl::StatusOr<std::vector<Finding>> findings = FindingsAt(0);
  if (!findings.ok()) return findings.status();
  pb::FleetFitReply reply = JudgeFit(*question, *findings, BuildTopology(traces, file_));
  *reply.mutable_coverage() = std::move(view->coverage);
  return reply;
}

}  // namespace cw::fleet
