// SPDX-License-Identifier: Apache-2.0
//
// cwctl report: what the agent decided and did not do, and what that cost. Reads the agent's file.
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/replay/reader.h"
#include "userspace/report/summary.h"

namespace cw::cli {
namespace {

using nlohmann::ordered_json;

struct ReportOptions {
  std::string since = "7d";
  std::string by = "kind";
  std::string file;       // "": the agent's
  std::string recording;  // "": the agent's
  bool items = false;
};

// Besides what ParseFor takes: days.
absl::StatusOr<double> ParseSince(const std::string& text) {
  int days = 0;
  if (!text.empty() && text.back() == 'd' && absl::SimpleAtoi(text.substr(0, text.size() - 1), &days) && days > 0)
    return days * 86400.0;
  absl::StatusOr<double> seconds = ParseFor(text);
  if (!seconds.ok() || *seconds <= 0)
    return absl::InvalidArgumentError(absl::StrCat("--since ", text, ": a time such as 7d, 12h or 30m is wanted"));
  return seconds;
}

report::By ParseBy(const std::string& word) {
  if (word == "job") return report::By::kJob;
  if (word == "link") return report::By::kLink;
  return word == "pair" ? report::By::kPair : report::By::kKind;
}

// Which file holds which recording, by the time at which it was begun.
std::map<int64_t, std::string> Recordings(const std::string& file) {
  std::map<int64_t, std::string> out;
  if (file.empty()) return out;
  for (const std::string& name : {file, file + ".1"}) {
    if (auto reader = replay::Reader::Open(name); reader.ok()) out[(*reader)->head().started_unix_ns] = name;
  }
  return out;
}

std::string TimeText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

std::string StallText(double ms) { return ms <= 0 ? kNoValue : DurationText(ms / 1e3); }

ordered_json ItemJson(const report::Item& item, const std::string& replay) {
  ordered_json out = ordered_json::parse(report::ToLine(item));
  out["replay"] = replay.empty() ? ordered_json(nullptr) : ordered_json(replay);
  return out;
}

ordered_json GroupJson(const report::Group& group) {
  ordered_json out = {{"key", group.key},
                      {"decisions", group.decisions},
                      {"flows", group.flows},
                      {"stall_ms", group.stall_ms},
                      {"stall_longest_ms", group.stall_longest_ms},
                      {"goodput_share", nullptr},
                      {"not_known", group.unknown},
                      {"first_unix_ns", group.first_unix_ns},
                      {"last_unix_ns", group.last_unix_ns}};
  if (group.goodput_items > 0) out["goodput_share"] = group.goodput_share;
  return out;
}

void ShowGroups(const std::vector<report::Group>& groups, const ReportOptions& options, bool colour) {
  Table table({options.by == "kind"   ? "CAPABILITY"
               : options.by == "job"  ? "JOB"
               : options.by == "link" ? "LINK"
                                      : "PAIR",
               ">DECISIONS", ">FLOWS", ">STALL IN ALL", ">LONGEST", ">GOODPUT LOST", "LAST"});
  for (const report::Group& group : groups) {
    table.Add({group.key, CountText(group.decisions), CountText(group.flows), StallText(group.stall_ms),
               StallText(group.stall_longest_ms),
               group.goodput_items == 0 ? kNoValue : absl::StrFormat("%.0f %%", 100 * group.goodput_share),
               TimeText(group.last_unix_ns)});
  }
  table.Print(std::cout, colour);
}

void ShowItems(const std::vector<std::pair<const report::Item*, std::string>>& items) {
  std::cout << '\n';
  for (const auto& [item, replay] : items) {
    std::cout << TimeText(item->time_unix_ns) << "  " << item->kind << "  flow " << item->flow << "  "
              << Printable(item->text);
    if (item->stall_ms) std::cout << "; stood for " << StallText(*item->stall_ms);
    if (item->goodput_share) std::cout << absl::StrFormat("; %.0f %% of its goodput", 100 * *item->goodput_share);
    if (item->times > 1) std::cout << "; " << item->times << " times";
    std::cout << (replay.empty() ? "" : "\n    " + replay) << '\n';
  }
}

absl::StatusOr<int> Report(Session& session, ReportOptions options) {
  const absl::StatusOr<double> since_s = ParseSince(options.since);
  if (!since_s.ok()) return since_s.status();
  if (options.file.empty()) {
    const auto status = session.Agent().Status();
    if (!status.ok()) return status.status();
    if (status->report_file().empty()) {
      return absl::FailedPreconditionError(
          "the agent keeps no report; set log.report_file (and log.observations_file, to replay what it says)");
    }
    options.file = status->report_file();
    if (options.recording.empty()) options.recording = status->observations_file();
  }
  const absl::StatusOr<report::Items> read = report::ReadFiles(options.file);
  if (!read.ok()) return read.status();
  const int64_t since_ns = absl::ToUnixNanos(absl::Now() - absl::Seconds(*since_s));
  const std::vector<report::Group> groups = report::Summarise(*read, since_ns, ParseBy(options.by));
  const std::map<int64_t, std::string> recordings = Recordings(options.recording);
  std::vector<std::pair<const report::Item*, std::string>> items;
  for (const report::Item& item : read->items) {
    if (item.time_unix_ns < since_ns) continue;
    const auto recording = item.window < 0 ? recordings.end() : recordings.find(item.recording_unix_ns);
    items.emplace_back(&item, recording == recordings.end()
                                  ? ""
                                  : absl::StrCat("cwctl replay ", recording->second, " --window ", item.window));
  }
  if (session.json) {
    ordered_json out = {
        {"file", options.file},     {"since_unix_ns", since_ns},       {"by", options.by},
        {"torn_lines", read->torn}, {"groups", ordered_json::array()}, {"items", ordered_json::array()}};
    for (const report::Group& group : groups) out["groups"].push_back(GroupJson(group));
    for (const auto& [item, replay] : items) out["items"].push_back(ItemJson(*item, replay));
    std::cout << out.dump(2, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
    return kOk;
  }
  if (groups.empty()) {
    std::cout << "nothing was decided and left undone within the last " << options.since << '\n';
  } else {
    ShowGroups(groups, options, session.Colour());
    if (options.items) ShowItems(items);
  }
  if (read->torn > 0) std::cout << CountText(read->torn) << " torn lines were skipped\n";
  return kOk;
}

}  // namespace

void AddReportVerb(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand(
      "report", "What the agent decided and, by its mode, did not do, and what acting would have avoided");
  auto options = std::make_shared<ReportOptions>();
  verb->add_option("--since", options->since, "How far back, such as 7d or 12h (7d)");
  verb->add_option("--by", options->by, "kind, job, link or pair (kind)")
      ->check(CLI::IsMember({"kind", "job", "link", "pair"}));
  verb->add_option("--file", options->file, "The report file, where no agent runs (log.report_file)");
  verb->add_option("--recording", options->recording, "The recording that its items stand in (log.observations_file)");
  verb->add_flag("--items", options->items, "Every item, with the command that replays it");
  verb->callback([&session, options] { session.action = [&session, options] { return Report(session, *options); }; });
}

}  // namespace cw::cli
