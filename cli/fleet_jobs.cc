// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet jobs: one job over all its hosts, and what changed between two runs; qps, jobs and collectives of a host.
// docs/fleet.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
constexpr int kMostLinksShown = 20, kMostPairsShown = 64;

struct FleetJobOptions {
  std::string job, at, first, second;
  Session::Watch watch;
};

// NCCL's people count in 10^9 bytes.
std::string BusText(double bytes_per_s) {
  return bytes_per_s > 0 ? absl::StrFormat("%.2f GB/s", bytes_per_s / 1e9) : kNoValue;
}

std::string RanksOf(const v1::FleetJob& job) {
  if (job.ranks() == 0) return kNoValue;
  return job.ranks_known() == job.ranks() ? std::to_string(job.ranks())
                                          : absl::StrFormat("%d of %d", job.ranks_known(), job.ranks());
}

std::string DelaysText(uint64_t samples, uint64_t p50_ns, uint64_t p99_ns) {
  if (samples == 0) return kNoValue;
  return absl::StrCat(NsText(static_cast<double>(p50_ns)), " / ", NsText(static_cast<double>(p99_ns)));
}

Cell FewCell(uint64_t count) { return {CountText(count), count > 0 ? Tone::kWarn : Tone::kPlain}; }

Cell StateOf(const v1::FleetJob& job) {
  if (job.ended()) return {"ended", Tone::kFaint};
  if (!job.held_up().empty()) return {job.held_up(0), Tone::kBad};
  return job.findings().empty() ? Cell(kNoValue) : Cell("crosses what is wrong", Tone::kWarn);
}

void ShowJobTable(const v1::FleetJobsReply& reply, bool colour) {
  Table table({"JOB", ">RANKS", ">HOSTS", ">FLOWS", ">SENT", ">BUS BANDWIDTH", ">COLL/S", ">SENT AGAIN", "HELD UP BY"});
  for (const v1::FleetJob& job : reply.jobs()) {
    table.Add({job.name(), RanksOf(job), std::to_string(job.hosts_size()), CountText(job.flows()),
               RateText(8 * job.bytes_per_s()), BusText(job.bus_bytes_per_s()),
               absl::StrFormat("%.1f", job.collectives_per_s()), FewCell(job.retransmits()), StateOf(job)});
  }
  table.empty() ? void(std::cout << "no job: no process has the profiler plug-in (docs/nccl.md), and no queue pair a "
                                    "label (cwctl label)\n")
                : table.Print(std::cout, colour);
  if (!table.empty()) std::cout << "\nOne with its ranks, pairs of hosts and links: cwctl fleet jobs JOB\n";
  ShowCoverage(reply.coverage(), colour);
}

void ShowPairs(const v1::FleetJob& job, bool colour) {
  Table table({"FROM", "TO", ">FLOWS", ">SENT", ">SENT AGAIN", ">CNP", ">QUEUE P50 / P99"});
  for (const v1::FleetJobPair& pair : job.pairs()) {
    if (&pair - &job.pairs(0) >= kMostPairsShown) break;
    table.Add({pair.from(), pair.to(), CountText(pair.flows()), RateText(8 * pair.bytes_per_s()),
               FewCell(pair.retransmits()), FewCell(pair.cnps()),
               DelaysText(pair.delay_samples(), pair.delay_p50_ns(), pair.delay_p99_ns())});
  }
  if (table.empty()) return;
  std::cout << '\n';
  table.Print(std::cout, colour);
  if (job.pairs_size() > kMostPairsShown)
    std::cout << "and " << job.pairs_size() - kMostPairsShown << " more pairs; --json has all\n";
}

void ShowJobLinks(const v1::FleetJob& job, bool colour) {
  Table table({"LINK", ">FLOWS", ">SENT"});
  for (const v1::FleetJobLink& link : job.links()) {
    if (&link - &job.links(0) >= kMostLinksShown) break;
    table.Add({absl::StrCat(link.link().from(), " > ", link.link().to()), CountText(link.flows()),
               RateText(8 * link.bytes_per_s())});
  }
  if (table.empty()) return;
  std::cout << '\n';
  table.Print(std::cout, colour);
  if (job.links_size() > kMostLinksShown)
    std::cout << "and " << job.links_size() - kMostLinksShown << " more links; --json has all\n";
}

void ShowRankTable(const google::protobuf::RepeatedPtrField<v1::FleetRank>& ranks, bool colour) {
  Table table(
      {"JOB", "COMMUNICATOR", "RANK", "HOST", ">PID", "PROCESS", ">COLL/S", ">BUS BANDWIDTH", "SLOWEST PEER", "NOW"});
  for (const v1::FleetRank& rank : ranks) {
    const v1::Job& job = rank.job();
    std::string peer = job.slowest_peer() < 0 ? kNoValue : std::to_string(job.slowest_peer());
    if (!job.slowest_peer_host().empty()) absl::StrAppend(&peer, " (", job.slowest_peer_host(), ")");
    table.Add({job.label().empty() ? kNoValue : job.label(), job.id(),
               absl::StrFormat("%d/%d", job.rank(), job.ranks()), rank.host(), std::to_string(job.pid()), job.process(),
               absl::StrFormat("%.1f", job.collectives_per_s()), BusText(job.bus_bytes_per_s()), peer,
               job.ended() ? Cell("ended", Tone::kFaint) : Cell(kNoValue)});
  }
  table.empty() ? void(std::cout << "no process tells of a communicator (docs/nccl.md)\n")
                : table.Print(std::cout, colour);
}

void ShowWholeJob(const v1::FleetJob& job, bool colour) {
  std::cout << Paint(Printable(job.name()), Tone::kTitle, colour) << (job.ended() ? "  ended" : "") << "\nranks     "
            << RanksOf(job) << " on " << Counted(static_cast<size_t>(job.hosts_size()), "host") << ": "
            << Printable(absl::StrJoin(job.hosts(), " ")) << "\nsends     " << RateText(8 * job.bytes_per_s())
            << " over " << Counted(job.flows(), "queue pair") << ", " << CountText(job.retransmits())
            << " packets again, " << CountText(job.cnps()) << " CNPs\nbus       " << BusText(job.bus_bytes_per_s())
            << " (median of ranks)\n";
  for (const std::string& sentence : job.held_up())
    std::cout << "held up   " << Paint(Printable(sentence), Tone::kBad, colour) << '\n';
  for (const std::string& id : job.findings()) std::cout << "finding   cwctl fleet findings " << id << '\n';
  if (!job.rank_list().empty()) {
    std::cout << '\n';
    ShowRankTable(job.rank_list(), colour);
  }
  ShowPairs(job, colour);
  ShowJobLinks(job, colour);
}

absl::StatusOr<int> ShowFleetJobs(Session& session, const FleetJobOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(options.at);
  if (!at.ok()) return at.status();
  v1::FleetJobsRequest request;
  request.set_job(options.job);
  request.set_at_ns(*at);
  const absl::StatusOr<v1::FleetJobsReply> reply = (*client)->Jobs(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (options.job.empty()) return ShowJobTable(*reply, session.Colour());
    for (const v1::FleetJob& job : reply->jobs()) ShowWholeJob(job, session.Colour());
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

// JOB, or JOB@TIME.
absl::StatusOr<v1::FleetRun> ParseRun(const std::string& text) {
  v1::FleetRun run;
  const size_t at = text.rfind('@');
  run.set_job(text.substr(0, at));
  if (run.job().empty()) return absl::InvalidArgumentError(absl::StrCat("a run is JOB or JOB@TIME, not ", text));
  if (at == std::string::npos) return run;
  const absl::StatusOr<int64_t> time = ParseAt(text.substr(at + 1));
  if (!time.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": behind the @ a time such as 2026-05-01T12:00:00Z, or how long ago, such as -2h"));
  run.set_at_ns(*time);
  return run;
}

absl::StatusOr<int> ShowJobDiff(Session& session, const FleetJobOptions& options) {
  const absl::StatusOr<v1::FleetRun> first = ParseRun(options.first), second = ParseRun(options.second);
  if (!first.ok()) return first.status();
  if (!second.ok()) return second.status();
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetDiffJobsRequest request;
  *request.mutable_first() = *first;
  *request.mutable_second() = *second;
  const absl::StatusOr<v1::FleetDiffJobsReply> reply = (*client)->DiffJobs(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    std::cout << Printable(reply->summary()) << '\n';
    Table table({"WHAT", "CHANGE"});
    for (const v1::FleetJobChange& change : reply->changes()) table.Add({change.what(), change.text()});
    if (table.empty()) {
      std::cout << "nothing else changed\n";
    } else {
      std::cout << '\n';
      table.Print(std::cout, session.Colour());
    }
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<v1::FleetWorkReply> AskWork(Session& session, const std::string& job, const std::string& verb) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(session.fleet_at);
  if (!at.ok()) return at.status();
  v1::FleetWorkRequest request;
  request.set_host(session.fleet_host);
  request.set_at_ns(*at);
  request.set_job(job);
  request.set_flows(verb == "qps");
  request.set_jobs(verb == "jobs");
  request.set_collectives(verb == "collectives");
  return (*client)->Work(request);
}

void ShowFlowTable(const v1::FleetWorkReply& reply, bool colour) {
  Table table({"LOCAL", "REMOTE", "PEER", ">QP", "PROCESS", "JOB", ">SENT", ">UDP-PORT", ">QUEUE P50 / P99",
               ">SENT AGAIN", ">CE", ">CNP"});
  for (const v1::FleetFlow& flow : reply.flows()) {
    table.Add({flow.local(), flow.remote(), flow.peer().empty() ? kNoValue : flow.peer(), QpnText(flow.qpn()),
               flow.pid() == 0 ? kNoValue : absl::StrFormat("%s[%d]", flow.process(), flow.pid()),
               flow.label().empty() ? kNoValue : flow.label(), RateText(8 * flow.bytes_per_s()),
               flow.udp_port() == 0 ? kNoValue : std::to_string(flow.udp_port()),
               DelaysText(flow.delay_samples(), flow.delay_p50_ns(), flow.delay_p99_ns()), FewCell(flow.retransmits()),
               FewCell(flow.ce_marks()), FewCell(flow.cnps())});
  }
  table.empty() ? void(std::cout << "no queue pair sent within the newest 10 s\n") : table.Print(std::cout, colour);
  for (const v1::FleetOtherFlows& others : reply.others())
    std::cout << "and " << Counted(others.flows(), "queue pair") << " that sent less, "
              << RateText(8 * others.bytes_per_s()) << " all together\n";
}

void ShowCollectiveTable(const v1::FleetWorkReply& reply, bool colour) {
  Table table({"TIME", "JOB", "RANK", ">SEQ", "FUNCTION", "STATE", ">TIME", ">BUS BANDWIDTH", "MOST OF THE TIME"});
  for (const v1::FleetCollective& told : reply.collectives()) {
    const v1::Collective& c = told.collective();
    const bool stands = c.state() == v1::Collective::STATE_STALLED;
    table.Add({UtcText(told.time_ns()), c.label().empty() ? c.job_id() : c.label(),
               absl::StrFormat("%d/%d", c.rank(), c.ranks()), c.peer() >= 0 ? kNoValue : std::to_string(c.seq()),
               c.peer() >= 0 ? absl::StrCat(c.function(), " ", c.peer()) : c.function(),
               stands ? Cell("stalled", Tone::kBad) : Cell("slow", Tone::kWarn),
               c.duration_ns() > 0 ? NsText(c.duration_ns()) : kNoValue, BusText(c.bus_bytes_per_s()),
               c.held().empty() ? kNoValue : c.held()});
  }
  table.empty() ? void(std::cout << "no collective stands, or was slow within five minutes\n")
                : table.Print(std::cout, colour);
}

}  // namespace

absl::StatusOr<int> ShowWorkOfHost(Session& session, const std::string& verb, const std::string& job) {
  const absl::StatusOr<v1::FleetWorkReply> reply = AskWork(session, job, verb);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    const bool colour = session.Colour();
    if (verb == "qps") ShowFlowTable(*reply, colour);
    if (verb == "jobs") ShowRankTable(reply->jobs(), colour);
    if (verb == "collectives") ShowCollectiveTable(*reply, colour);
    ShowCoverage(reply->coverage(), colour);
  });
  return kOk;
}

void AddFleetJobVerbs(CLI::App& fleet, Session& session) {
  auto options = std::make_shared<FleetJobOptions>();
  CLI::App* jobs = fleet.add_subcommand("jobs", "Jobs over all their hosts: bandwidth, who talks to whom, who waits");
  jobs->add_option("job", options->job, "This one alone, with ranks, pairs of hosts and links: label or communicator");
  jobs->add_option("--at", options->at, "As it was then: 2026-05-01T12:00:00Z, or how long ago: --at=-10m");
  options->watch.of_fleet = true;
  Session::AddWatch(*jobs, options->watch);
  CLI::App* diff = jobs->add_subcommand("diff", "What changed between two runs of a job, or between two times of one");
  diff->add_option("first", options->first, "JOB or JOB@TIME: the minute up to then, such as train@-2h")->required();
  diff->add_option("second", options->second, "The same; without a time it is now")->required();
  diff->callback(
      [&session, options] { session.action = [&session, options] { return ShowJobDiff(session, *options); }; });
  jobs->callback([&session, options, diff] {
    if (diff->parsed()) return;
    session.action = [&session, options]() -> absl::StatusOr<int> {
      if (absl::Status status = Session::CheckWatch(options->watch, options->job); !status.ok()) return status;
      return session.Repeat(options->watch, [&] { return ShowFleetJobs(session, *options); });
    };
  });
}

}  // namespace cw::cli
