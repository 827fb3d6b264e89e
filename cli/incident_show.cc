// SPDX-License-Identifier: Apache-2.0
#include "cli/incident.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;
constexpr int kFewSteps = 20, kFewPaths = 12, kFewSeconds = 5;

// "-1.2 s": before the pivot.
std::string Since(int64_t time_ns, int64_t pivot_ns) {
  return absl::StrFormat("%+.3f s", static_cast<double>(time_ns - pivot_ns) / 1e9);
}

std::string QueueText(uint64_t ns) { return NsText(static_cast<double>(ns)); }

void ShowIncidentHead(const v1::IncidentView& view, bool colour) {
  const v1::Incident& incident = view.incident();
  std::cout << "incident  " << Printable(incident.id()) << "\nbecause   " << Printable(incident.reason())
            << "\nspan      " << UtcText(incident.from_ns()) << " to " << UtcText(incident.to_ns()) << "\npivot     "
            << UtcText(incident.pivot_ns()) << '\n';
  if (incident.has_finding()) {
    const v1::FleetFinding& finding = incident.finding();
    std::cout << "finding   " << Paint(finding.cause(), Tone::kBad, colour) << "  " << Printable(finding.scope())
              << "  " << Printable(finding.id()) << '\n';
    for (const std::string& evidence : finding.evidence()) std::cout << "          " << Printable(evidence) << '\n';
  }
  for (const v1::IncidentHost& host : incident.hosts()) {
    std::cout << "host      " << Printable(host.host()) << (host.affected() ? "" : ", as a witness") << ": "
              << (host.source().empty() ? "nothing" : absl::StrCat(host.seconds(), " records of the ", host.source()));
    if (!host.missing().empty()) std::cout << "; " << Paint(host.missing(), Tone::kWarn, colour);
    if (host.damaged_bytes() > 0) std::cout << "; " << host.damaged_bytes() << " bytes of its ring were damaged";
    std::cout << '\n';
  }
  std::cout << "samples   " << CountText(view.samples()) << " raw ones\n";
  if (view.cut_off()) std::cout << Paint("the file is cut off: this is what is left", Tone::kWarn, colour) << '\n';
  if (view.damaged_bytes() > 0)
    std::cout << Paint(absl::StrCat(view.damaged_bytes(), " bytes of the file are damaged"), Tone::kWarn, colour)
              << '\n';
}

void ShowIncidentSteps(const v1::IncidentView& view, bool all, bool colour) {
  const int64_t pivot_ns = view.incident().pivot_ns();
  // What changed first stands around the pivot: a little before it, since a finding comes behind its cause.
  int first = 0;
  while (!all && first < view.steps_size() && view.steps(first).time_ns() < pivot_ns - 10'000'000'000) ++first;
  Table table({">WHEN", ">GOOD TO", "HOST", "WHAT", "WORDS"});
  int shown = 0;
  for (int i = first; i < view.steps_size() && (all || shown < kFewSteps); ++i, ++shown) {
    const v1::IncidentStep& step = view.steps(i);
    table.Add({Since(step.time_ns(), pivot_ns), QueueText(step.bound_ns()), step.host(), step.what(), step.words()});
  }
  std::cout << "\nWhat changed, seconds from the pivot\n";
  table.empty() ? void(std::cout << "nothing\n") : table.Print(std::cout, colour);
  if (shown < view.steps_size()) std::cout << view.steps_size() - shown << " more: --all shows them\n";
}

void ShowIncidentPaths(const v1::IncidentView& view, bool all, bool colour) {
  Table table({"HOST", "TO", ">PORT", "BEFORE", "WORST", "LAST", ">P50 BEFORE", ">AFTER", ">P99 BEFORE", ">AFTER",
               ">LOST BEFORE", ">AFTER", ">SAMPLES"});
  const auto lost = [](uint64_t missing, uint64_t sent) {
    return sent == 0 ? std::string(kNoValue) : ShareText(static_cast<double>(missing) / static_cast<double>(sent));
  };
  int shown = 0;
  for (const v1::IncidentPath& path : view.paths()) {
    if (!all && (shown >= kFewPaths || path.reverse())) continue;
    ++shown;
    table.Add({path.host(), absl::StrCat(path.peer(), path.reverse() ? ", back" : ""), std::to_string(path.udp_port()),
               StateCell(path.before()), StateCell(path.worst()), StateCell(path.last()),
               QueueText(path.p50_before_ns()), QueueText(path.p50_after_ns()), QueueText(path.p99_before_ns()),
               QueueText(path.p99_after_ns()), lost(path.lost_before(), path.sent_before()),
               lost(path.lost_after(), path.sent_after()), CountText(path.samples_before() + path.samples_after())});
  }
  std::cout << "\nPaths, the worst first; before and after the pivot, delays are those of queues\n";
  table.empty() ? void(std::cout << "none\n") : table.Print(std::cout, colour);
  if (shown < view.paths_size()) std::cout << view.paths_size() - shown << " more: --all shows them\n";
}

void ShowIncidentDelays(const v1::IncidentView& view, bool all, bool colour) {
  const int64_t pivot_ns = view.incident().pivot_ns();
  Table table({">SECOND", ">UP", ">NOT UP", ">DELAYS", ">P50", ">P99", ">MAX"});
  for (const v1::IncidentDelay& delay : view.delays()) {
    const int64_t since_ns = delay.from_ns() - pivot_ns;
    if (!all && std::abs(since_ns) > int64_t{kFewSeconds} * 1'000'000'000) continue;
    table.Add({Since(delay.from_ns(), pivot_ns),
               CountText(delay.up()),
               {CountText(delay.not_up()), delay.not_up() > 0 ? Tone::kBad : Tone::kPlain},
               CountText(delay.count()),
               QueueText(delay.p50_ns()),
               QueueText(delay.p99_ns()),
               QueueText(delay.max_ns())});
  }
  std::cout << "\nPer second, over all hosts\n";
  table.empty() ? void(std::cout << "nothing\n") : table.Print(std::cout, colour);
}

}  // namespace

void ShowIncidentList(const v1::IncidentListReply& reply, bool colour) {
  Table table({"INCIDENT", "STATE", "PIVOT", ">HOSTS", ">MISSING", ">SIZE", "BECAUSE"});
  for (const v1::Incident& incident : reply.incidents()) {
    const auto missing = std::count_if(incident.hosts().begin(), incident.hosts().end(),
                                       [](const v1::IncidentHost& host) { return !host.missing().empty(); });
    table.Add({incident.id(),
               incident.state(),
               UtcText(incident.pivot_ns()),
               std::to_string(incident.hosts_size()),
               {std::to_string(missing), missing > 0 ? Tone::kWarn : Tone::kPlain},
               BytesText(static_cast<double>(incident.bytes())),
               incident.reason()});
  }
  table.empty() ? void(std::cout << "no incident was taken yet; see cwctl incident take --help\n")
                : table.Print(std::cout, colour);
  if (reply.removed() > 0) std::cout << reply.removed() << " were removed to make room for newer ones\n";
  if (reply.not_taken() > 0)
    std::cout << reply.not_taken() << " were not taken, too soon after others; take one by hand\n";
  if (reply.refused() > 0) std::cout << reply.refused() << " parts of hosts were refused; the service's log says why\n";
}

void ShowIncidentView(const v1::IncidentView& view, bool all, bool colour) {
  ShowIncidentHead(view, colour);
  ShowIncidentSteps(view, all, colour);
  ShowIncidentPaths(view, all, colour);
  ShowIncidentDelays(view, all, colour);
}

void ShowIncidentReplay(const v1::IncidentReplay& replay, bool colour) {
  for (const v1::FleetFinding& finding : replay.findings()) {
    std::cout << Paint(finding.cause(), Tone::kBad, colour) << "  " << Printable(finding.scope()) << "\n  since  "
              << UtcText(finding.start_ns()) << "\n  until  "
              << (finding.end_ns() == 0 ? "the end of the incident" : UtcText(finding.end_ns())) << '\n';
    for (const std::string& evidence : finding.evidence()) std::cout << "  " << Printable(evidence) << '\n';
  }
  if (replay.findings().empty()) std::cout << "nothing is found\n";
  std::cout << replay.pictures() << " seconds were looked at\n";
  for (const std::string& note : replay.notes()) std::cout << Paint(note, Tone::kWarn, colour) << '\n';
}

}  // namespace cw::cli
