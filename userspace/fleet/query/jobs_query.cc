// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/jobs_query.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "userspace/fleet/jobs/diff.h"
#include "userspace/fleet/query/finding_message.h"
#include "userspace/fleet/store/work_blob.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr size_t kMostOpenFindings = 1000;

absl::Status NoSuchJob(const std::string& job) {
  return absl::NotFoundError(
      absl::StrCat("no job ", job, " at that time; see cwctl fleet jobs, of earlier with --at=-10m"));
}

template <typename Message>
bool IsOf(const Message& message, const std::string& id, const std::string& job) {
  return job.empty() || message.label() == job || id == job;
}

void FillFlow(const HostWork& work, const HostWork::Flow& flow, pb::FleetFlow& out) {
  const FlowSample& s = *flow.sample;
  out.set_host(work.host);
  out.set_local(s.name.local.ToString());
  out.set_remote(s.name.remote.ToString());
  out.set_peer(s.name.peer);
  out.set_qpn(s.name.qpn);
  out.set_peer_qpn(s.name.peer_qpn);
  out.set_pid(s.name.pid);
  out.set_process(s.name.process);
  out.set_label(s.name.label);
  out.set_udp_port(s.udp_port);
  if (flow.hops != nullptr) {
    for (const Addr& hop : *flow.hops) out.add_hops(hop.is_zero() ? "*" : hop.ToString());
  }
  if (work.flows_s > 0) out.set_bytes_per_s(static_cast<double>(s.bytes) / work.flows_s);
  out.set_retransmits(s.retransmits);
  out.set_ce_marks(s.ce);
  out.set_cnps(s.cnps);
  out.set_delay_samples(s.delay.Count());
  out.set_delay_p50_ns(static_cast<uint64_t>(s.delay.QuantileNs(0.5)));
  out.set_delay_p99_ns(static_cast<uint64_t>(s.delay.QuantileNs(0.99)));
  out.set_delay_max_ns(s.delay.max_ns);
  out.set_from_ns(work.flows_ns - static_cast<int64_t>(work.flows_s * 1e9));
  out.set_time_ns(work.flows_ns);
}

void AddFlows(const HostWork& work, const LiveWork& live, const std::string& job, pb::FleetWorkReply& reply) {
  std::vector<const HostWork::Flow*> flows;
  for (const HostWork::Flow& flow : work.flows) {
    if (job.empty() || flow.sample->name.label == job) flows.push_back(&flow);
  }
  std::stable_sort(flows.begin(), flows.end(),
                   [](const auto* a, const auto* b) { return a->sample->bytes > b->sample->bytes; });
  for (const HostWork::Flow* flow : flows) FillFlow(work, *flow, *reply.add_flows());
  if (live.flows().other_flows == 0 || !job.empty()) return;
  pb::FleetOtherFlows& others = *reply.add_others();
  others.set_host(work.host);
  others.set_flows(live.flows().other_flows);
  if (work.flows_s > 0) others.set_bytes_per_s(static_cast<double>(live.flows().other_bytes) / work.flows_s);
  others.set_retransmits(live.flows().other_retransmits);
}

void AddRanksOf(const std::string& host, const LiveWork& live, const std::string& job, pb::FleetWorkReply& reply) {
  for (const auto& [key, told] : live.jobs()) {
    if (!IsOf(told.job, told.job.id(), job)) continue;
    pb::FleetRank& out = *reply.add_jobs();
    out.set_host(host);
    out.set_time_ns(told.time_ns);
    *out.mutable_job() = told.job;
  }
}

void AddCollectivesOf(const std::string& host, const LiveWork& live, const std::string& job,
                      pb::FleetWorkReply& reply) {
  for (const auto& [name, told] : live.collectives()) {
    if (!IsOf(told.collective, told.collective.job_id(), job)) continue;
    pb::FleetCollective& out = *reply.add_collectives();
    out.set_host(host);
    out.set_time_ns(told.time_ns);
    *out.mutable_collective() = told.collective;
  }
}

// What hosts told, as the room of jobs takes it.
HostWork WorkOf(const std::string& host, bool speaks, const LiveWork& live,
                const std::map<uint64_t, std::vector<Addr>>& hops) {
  const WorkSample& flows = live.flows();
  HostWork work{.host = host,
                .speaks = speaks,
                .flows_s = static_cast<double>(flows.time_ns - flows.from_ns) / 1e9,
                .flows_ns = flows.time_ns,
                .flows = {},
                .ranks = {},
                .collectives = {}};
  for (const FlowSample& sample : flows.flows) {
    const auto list = hops.find(sample.hops);
    work.flows.push_back({&sample, list == hops.end() ? nullptr : &list->second});
  }
  for (const auto& [key, told] : live.jobs()) work.ranks.push_back({&told.job, told.time_ns});
  for (const auto& [name, told] : live.collectives()) work.collectives.push_back({&told.collective, told.time_ns});
  return work;
}

bool IsNamed(const JoinedJob& job, const std::string& wanted) {
  return wanted.empty() || job.name == wanted || std::find(job.ids.begin(), job.ids.end(), wanted) != job.ids.end();
}

const JoinedJob* FindJob(const std::vector<JoinedJob>& jobs, const std::string& wanted) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const JoinedJob& job) { return IsNamed(job, wanted); });
  return wanted.empty() || found == jobs.end() ? nullptr : &*found;
}

}  // namespace

Topology JobsQuery::TopologyOf(const std::vector<HostWork>& hosts, const FleetFile& file) {
  std::vector<Trace> traces;
  for (const HostWork& work : hosts) {
    for (const HostWork::Flow& flow : work.flows) {
      if (flow.hops != nullptr) traces.push_back({flow.sample->name.local, flow.sample->name.remote, *flow.hops});
    }
  }
  return BuildTopology(traces, file);
}

absl::StatusOr<std::shared_ptr<const HopBook::Lists>> JobsQuery::HopsOf(const std::string& host,
                                                                        const WorkSample& flows) {
  std::set<uint64_t> names;
  for (const FlowSample& flow : flows.flows) names.insert(flow.hops);
  return hops_.Of(host, names, absl::Now());
}

absl::Status JobsQuery::AddNow(const std::string& wanted, View& view) {
  std::map<std::string, LiveHost> known;  // without their paths
  each_host_([&](const LiveHost& live) {
    LiveHost& host = known[live.host];
    host.connected = live.connected;
    host.last_seen = live.last_seen;
    host.newest_ns = live.newest_ns;
    host.work = live.work;
  });
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& seen : *kept) {
    if (seen.facts.removed_ns == 0) known.try_emplace(seen.host);
  }
  for (const auto& [name, host] : known) {
    if (!wanted.empty() && name != wanted) continue;
    Seen seen{.host = name, .speaks = host.connected, .work = nullptr, .hops = nullptr};
    if (!host.connected) {
      view.coverage.add_missing(WhyMissing(name, host.last_seen));
    } else if (host.work != nullptr) {
      auto now = std::make_shared<LiveWork>(*host.work);
      now->Forget(host.newest_ns);
      seen.work = std::move(now);
    }
    view.hosts.push_back(std::move(seen));
  }
  return absl::OkStatus();
}

absl::Status JobsQuery::AddThen(const std::string& wanted, int64_t at_ns, absl::Duration span, View& view) {
  const absl::StatusOr<std::vector<HostSeen>> kept = store_.Hosts();
  if (!kept.ok()) return kept.status();
  for (const HostSeen& host : *kept) {
    if (!wanted.empty() && host.host != wanted) continue;
    if (host.facts.removed_ns != 0 && at_ns >= host.facts.removed_ns) continue;
    const absl::Duration reach = std::max(LiveWork::kCollectivesHold, span);
    const absl::StatusOr<WorkReply> told =
        store_.Work({.host = host.host, .from_ns = at_ns - absl::ToInt64Nanoseconds(reach), .to_ns = at_ns});
    if (absl::IsDataLoss(told.status())) {
      view.coverage.add_missing(absl::StrCat(host.host, ": ", told.status().message()));
      view.hosts.push_back({.host = host.host, .speaks = false, .work = nullptr, .hops = nullptr});
      continue;
    }
    if (!told.ok()) return told.status();
    auto work = std::make_shared<LiveWork>();
    std::vector<WorkSample> run;
    for (const WorkSample& sample : told->samples) {
      work->Add(sample);
      if (sample.time_ns > at_ns - absl::ToInt64Nanoseconds(span)) run.push_back(sample);
    }
    if (span > absl::ZeroDuration()) work->Add(MergeWork(run));
    work->Forget(at_ns);
    // A quiet host told of its paths; one that told nothing is missing.
    bool told_any =
        !told->samples.empty() && told->samples.back().time_ns > at_ns - absl::ToInt64Nanoseconds(Query::kReach);
    if (!told_any) {
      const absl::StatusOr<HostView> paths = store_.LatestAt(host.host, at_ns, Query::kReach);
      if (!paths.ok()) return paths.status();
      told_any = !paths->paths.empty();
    }
    if (!told_any)
      view.coverage.add_missing(
          absl::StrFormat("%s: nothing is kept of the %s before", host.host, absl::FormatDuration(Query::kReach)));
    view.hosts.push_back({.host = host.host, .speaks = told_any, .work = std::move(work), .hops = nullptr});
  }
  return absl::OkStatus();
}

absl::StatusOr<JobsQuery::View> JobsQuery::Look(const std::string& host, int64_t at_ns, absl::Duration span) {
  View view;
  absl::Status status = at_ns == 0 ? AddNow(host, view) : AddThen(host, at_ns, span, view);
  if (!status.ok()) return status;
  if (!host.empty() && view.hosts.empty()) return NoSuchHost(host);
  view.coverage.set_hosts(static_cast<uint32_t>(view.hosts.size()));
  for (Seen& seen : view.hosts) {
    if (seen.work == nullptr) seen.work = std::make_shared<LiveWork>();
    absl::StatusOr<std::shared_ptr<const HopBook::Lists>> hops = HopsOf(seen.host, seen.work->flows());
    if (!hops.ok()) return hops.status();
    seen.hops = *std::move(hops);
    view.work.push_back(WorkOf(seen.host, seen.speaks, *seen.work, *seen.hops));
  }
  return view;
}

absl::StatusOr<std::vector<Finding>> JobsQuery::FindingsAt(int64_t at_ns) {
  const absl::StatusOr<std::vector<StoredFinding>> stored =
      store_.Findings({.at_ns = at_ns, .open = at_ns == 0, .limit = kMostOpenFindings});
  if (!stored.ok()) return stored.status();
  std::vector<Finding> findings;
  for (const StoredFinding& one : *stored) {
    pb::FleetFinding message;
    if (!message.ParseFromString(one.body)) continue;
    const absl::StatusOr<Finding> finding = FindingOf(message);
    if (finding.ok()) findings.push_back(*finding);
  }
  return findings;
}

absl::StatusOr<pb::FleetWorkReply> JobsQuery::Work(const pb::FleetWorkRequest& request) {
  absl::StatusOr<View> view = Look(request.host(), request.at_ns(), absl::ZeroDuration());
  if (!view.ok()) return view.status();
  pb::FleetWorkReply reply;
  *reply.mutable_coverage() = std::move(view->coverage);
  for (size_t h = 0; h < view->hosts.size(); ++h) {
    const Seen& seen = view->hosts[h];
    if (request.flows()) AddFlows(view->work[h], *seen.work, request.job(), reply);
    if (request.jobs()) AddRanksOf(seen.host, *seen.work, request.job(), reply);
    if (request.collectives()) AddCollectivesOf(seen.host, *seen.work, request.job(), reply);
  }
  std::stable_sort(reply.mutable_collectives()->begin(), reply.mutable_collectives()->end(),
                   [](const auto& a, const auto& b) { return a.time_ns() < b.time_ns(); });
  return reply;
}

absl::StatusOr<pb::FleetJobsReply> JobsQuery::Jobs(const pb::FleetJobsRequest& request) {
  absl::StatusOr<View> view = Look("", request.at_ns(), absl::ZeroDuration());
  if (!view.ok()) return view.status();
  const absl::StatusOr<std::vector<Finding>> findings = FindingsAt(request.at_ns());
  if (!findings.ok()) return findings.status();
  const Topology topology = TopologyOf(view->work, file_);
  pb::FleetJobsReply reply;
  *reply.mutable_coverage() = std::move(view->coverage);
  const bool whole = !request.job().empty();
  for (const JoinedJob& job : JoinJobs(view->work)) {
    if (!IsNamed(job, request.job())) continue;
    pb::FleetJob& out = *reply.add_jobs();
    out = DescribeJob(job, view->work, whole);
    for (const HeldUpBy& up : WhatHoldsUp(job, view->work, *findings, topology)) out.add_held_up(up.text);
    const JobReach reach = ReachOf(job, view->work);
    for (const Finding& finding : *findings) {
      if (Crosses(finding, reach, topology)) out.add_findings(IdText(finding.id));
    }
  }
  if (whole && reply.jobs().empty()) return NoSuchJob(request.job());
  return reply;
}

absl::StatusOr<pb::FleetDiffJobsReply> JobsQuery::Diff(const pb::FleetDiffJobsRequest& request, int64_t now_ns) {
  if (request.first().job().empty() || request.second().job().empty())
    return absl::InvalidArgumentError("two runs to compare: a job each, and its time, such as train@-2h train");
  std::vector<View> views;
  std::vector<std::vector<JoinedJob>> jobs;
  for (const pb::FleetRun* run : {&request.first(), &request.second()}) {
    absl::StatusOr<View> view = Look("", run->at_ns() == 0 ? now_ns : run->at_ns(), kRun);
    if (!view.ok()) return view.status();
    views.push_back(*std::move(view));
    jobs.push_back(JoinJobs(views.back().work));
  }
  const JoinedJob* first = FindJob(jobs[0], request.first().job());
  const JoinedJob* second = FindJob(jobs[1], request.second().job());
  if (first == nullptr) return NoSuchJob(request.first().job());
  if (second == nullptr) return NoSuchJob(request.second().job());
  pb::FleetDiffJobsReply reply = DiffJobs({first, views[0].work}, {second, views[1].work});
  pb::Coverage& coverage = *reply.mutable_coverage();
  coverage.set_hosts(std::max(views[0].coverage.hosts(), views[1].coverage.hosts()));
  for (const View& view : views) {
    for (const std::string& missing : view.coverage.missing()) {
      if (std::find(coverage.missing().begin(), coverage.missing().end(), missing) == coverage.missing().end())
        coverage.add_missing(missing);
    }
  }
  return reply;
}

}  // namespace cw::fleet
