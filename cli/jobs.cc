// SPDX-License-Identifier: Apache-2.0
//
// cwctl jobs, cwctl collectives: what the NCCL profiler plug-in tells of the training processes of this host.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format.h"
#include "cli/jobs.h"
#include "cli/session.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct JobOptions {
  std::string job;
  bool slow = false;
  uint32_t last = 0;
  Session::Watch watch;
};

constexpr char kNobody[] =
    "no process of this host has the profiler plug-in: NCCL_PROFILER_PLUGIN=libnccl-profiler-cwfabric.so "
    "(docs/nccl.md)\n";

// NCCL's people count in 10^9 bytes.
std::string BandwidthText(double bytes_per_s) {
  return bytes_per_s > 0 ? absl::StrFormat("%.2f GB/s", bytes_per_s / 1e9) : kNoValue;
}

std::string RanksText(int rank, int ranks) { return absl::StrFormat("%d/%d", rank, ranks); }

std::string NameOf(const std::string& label, const std::string& id) { return label.empty() ? id : label; }

// Median / 99th percentile ± bound of the chunks' one-way delays.
std::string ChunkText(bool known, const v1::ChunkDelay& delay) {
  if (!known) return kNoValue;
  return absl::StrCat(NsText(delay.p50_ns()), " / ", NsText(delay.p99_ns()), " ±", NsText(delay.bound_ns()));
}

Cell CollectiveState(const v1::Collective& c) {
  switch (c.state()) {
    case v1::Collective::STATE_ENQUEUED:
      return {"enqueued", Tone::kFaint};
    case v1::Collective::STATE_RUNNING:
      return {"running", Tone::kPlain};
    case v1::Collective::STATE_STALLED:
      return {"stalled", Tone::kBad};
    default:
      return c.slow() ? Cell("slow", Tone::kWarn) : Cell("done", Tone::kGood);
  }
}

std::string FunctionText(const v1::Collective& c) {
  return c.peer() >= 0 ? absl::StrCat(c.function(), " ", c.peer()) : c.function();
}

std::string PeerText(const v1::Job& job) {
  if (job.slowest_peer() < 0) return kNoValue;
  std::string text = absl::StrCat(job.slowest_peer());
  if (!job.slowest_peer_host().empty()) absl::StrAppend(&text, " (", job.slowest_peer_host(), ")");
  return text;
}

void ShowNotes(const v1::ListJobsReply& reply, bool colour) {
  for (const v1::Job& job : reply.jobs()) {
    const std::string who = absl::StrFormat("%s rank %d", NameOf(job.label(), job.id()), job.rank());
    if (job.has_running() && job.running().state() == v1::Collective::STATE_STALLED) {
      std::cout << Paint(absl::StrFormat("%s: %s %d stands: %s", who, job.running().function(), job.running().seq(),
                                         job.running().held()),
                         Tone::kBad, colour)
                << '\n';
    }
    if (!job.note().empty()) std::cout << Printable(absl::StrCat(who, ": ", job.note())) << '\n';
    if (job.lost() > 0 || job.dropped() > 0) {
      std::cout << Paint(
                       absl::StrFormat("%s: %s records were lost and %s events had no room: its figures are of a part",
                                       who, CountText(job.lost()), CountText(job.dropped())),
                       Tone::kWarn, colour)
                << '\n';
    }
  }
}

absl::StatusOr<int> Jobs(Session& session, const JobOptions& options) {
  v1::ListJobsRequest request;
  request.set_job(options.job);
  absl::StatusOr<v1::ListJobsReply> reply = session.Agent().ListJobs(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (reply->jobs().empty()) {
      std::cout << kNobody;
      return;
    }
    Table table({"JOB", "COMMUNICATOR", "RANK", ">PID", "PROCESS", ">COLL/S", ">BUS BANDWIDTH", "SLOWEST PEER", "FLOW",
                 ">CHUNK DELAY", "NOW"});
    for (const v1::Job& job : reply->jobs()) {
      Cell now = job.ended() ? Cell("ended", Tone::kFaint) : Cell(kNoValue);
      if (job.has_running()) {
        now = CollectiveState(job.running());
        now.text = absl::StrCat(job.running().function(), " ", now.text);
      }
      table.Add({job.label().empty() ? kNoValue : job.label(), job.id(), RanksText(job.rank(), job.ranks()),
                 std::to_string(job.pid()), job.process(), absl::StrFormat("%.1f", job.collectives_per_s()),
                 BandwidthText(job.bus_bytes_per_s()), PeerText(job),
                 job.slowest_flow().empty() ? kNoValue : job.slowest_flow(),
                 ChunkText(job.has_chunk_delay(), job.chunk_delay()), now});
    }
    table.Print(std::cout, session.Colour());
    ShowNotes(*reply, session.Colour());
  });
  return kOk;
}

void AddRow(const v1::Collective& c, Table& table) {
  table.Add({NameOf(c.label(), c.job_id()), RanksText(c.rank(), c.ranks()),
             c.peer() >= 0 ? kNoValue : std::to_string(c.seq()), FunctionText(c),
             c.bytes() > 0 ? BytesText(static_cast<double>(c.bytes())) : kNoValue, c.algorithm(), c.protocol(),
             CollectiveState(c), c.duration_ns() > 0 ? NsText(c.duration_ns()) : kNoValue,
             BandwidthText(c.bus_bytes_per_s()), ChunkText(c.has_chunk_delay(), c.chunk_delay()),
             absl::StrCat(DurationText(c.enqueued_ago_s()), " ago"), c.held().empty() ? kNoValue : c.held()});
}

absl::StatusOr<int> Collectives(Session& session, const JobOptions& options) {
  v1::ListCollectivesRequest request;
  request.set_job(options.job);
  request.set_slow(options.slow);
  request.set_last(options.last);
  absl::StatusOr<v1::ListCollectivesReply> reply = session.Agent().ListCollectives(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (reply->collectives().empty()) {
      std::cout << (options.slow ? "no collective is slow or stands\n"
                                 : "no collectives; cwctl jobs tells who profiles\n");
    } else {
      Table table({"JOB", "RANK", ">SEQ", "FUNCTION", ">SIZE", "ALGO", "PROTO", "STATE", ">TIME", ">BUS BANDWIDTH",
                   ">CHUNK DELAY", "ENQUEUED", "MOST OF THE TIME"});
      for (const v1::Collective& c : reply->collectives()) AddRow(c, table);
      table.Print(std::cout, session.Colour());
    }
    for (const v1::Collective& c : reply->stalls()) {
      std::cout << Paint(
                       absl::StrFormat("stood: %s %s %d, rank %d, %s ago: %s", NameOf(c.label(), c.job_id()),
                                       FunctionText(c), c.seq(), c.rank(), DurationText(c.enqueued_ago_s()), c.held()),
                       Tone::kBad, session.Colour())
                << '\n';
    }
  });
  return kOk;
}

}  // namespace

std::string CollectiveText(const v1::Collective& c) {
  return absl::StrFormat("%s%s of job %s, rank %d of %d, %s ago%s%s", FunctionText(c),
                         c.peer() >= 0 ? "" : absl::StrCat(" ", c.seq()), NameOf(c.label(), c.job_id()), c.rank(),
                         c.ranks(), DurationText(c.enqueued_ago_s()),
                         c.held().empty() ? "" : "; most of its time: ", c.held());
}

void AddJobVerbs(CLI::App& app, Session& session) {
  auto options = std::make_shared<JobOptions>();
  CLI::App* jobs = app.add_subcommand("jobs", "Communicators of training processes: rate, bandwidth, slowest peer");
  jobs->add_option("--job", options->job, "Only this one (label or id of the communicator)");
  Session::AddWatch(*jobs, options->watch);
  jobs->callback([&session, options] {
    session.action = [&session, options] {
      return session.Repeat(options->watch, [&] { return Jobs(session, *options); });
    };
  });
  CLI::App* collectives = app.add_subcommand("collectives", "Collectives: how long they took, and what held them back");
  collectives->add_option("--job", options->job, "Only of this one (label or id of the communicator)");
  collectives->add_flag("--slow", options->slow, "Only those that stand, or took much longer than their like");
  collectives->add_option("--last", options->last, "At most so many, the newest (default 100)");
  Session::AddWatch(*collectives, options->watch);
  collectives->callback([&session, options] {
    session.action = [&session, options] {
      return session.Repeat(options->watch, [&] { return Collectives(session, *options); });
    };
  });
}

}  // namespace cw::cli
