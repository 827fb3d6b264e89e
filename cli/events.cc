// SPDX-License-Identifier: Apache-2.0
//
// cwctl events.
#include <CLI/CLI.hpp>
#include <deque>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/event_filter.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/json.h"
#include "userspace/api/path_ref.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct EventOptions {
  bool follow = false;
  uint32_t last = 50;
  uint64_t count = 0;
  EventFilter filter;
  std::string since, until;
};

Tone EventTone(v1::Severity severity) {
  switch (severity) {
    case v1::SEVERITY_ALERT:
      return Tone::kBad;
    case v1::SEVERITY_NOTICE:
      return Tone::kWarn;
    default:
      return Tone::kPlain;
  }
}

void ShowEvent(const v1::Event& event, bool colour) {
  std::cout << UtcText(event.time_unix_ns()) << "  " << absl::StrFormat("%-6s", Printable(event.type())) << "  "
            << (event.dry() ? "(observe) " : "") << Paint(event.text(), EventTone(event.severity()), colour);
  if (!event.evidence().empty()) {
    std::cout << "  [";
    const char* separator = "";
    for (const v1::Evidence& evidence : event.evidence()) {
      std::cout << separator << Printable(evidence.name()) << " " << Printable(evidence.value());
      separator = ", ";
    }
    std::cout << "]";
  }
  std::cout << std::endl;
}

// Shows events one line each, in both forms; lost ones are told, in JSON by the jump of seq.
class EventPrinter {
 public:
  EventPrinter(const Session& session, uint64_t count) : session_(session), count_(count) {}

  // False: enough, or nobody reads any more.
  bool Show(const v1::Event& event) {
    if (session_.json) {
      std::cout << api::ToJson(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    } else {
      ShowEvent(event, session_.Colour());
    }
    ++shown_;
    return More();
  }
  // Each event that comes, whether it is shown or not.
  void See(const v1::Event& event) {
    if (!session_.json && seen_ != 0 && event.seq() > seen_ + 1)
      std::cout << absl::StrFormat("  … %s lost …\n", Counted(event.seq() - seen_ - 1, "event"));
    seen_ = event.seq();
    run_ = event.run();
  }
  bool More() const { return static_cast<bool>(std::cout) && (count_ == 0 || shown_ < count_); }
  uint64_t shown() const { return shown_; }
  uint64_t seen() const { return seen_; }
  uint64_t run() const { return run_; }

 private:
  const Session& session_;
  const uint64_t count_;
  uint64_t shown_ = 0, seen_ = 0, run_ = 0;
};

// The newest --last of those kept that pass.
absl::Status ShowPast(Session& session, const EventOptions& options, EventPrinter& printer) {
  v1::EventsRequest request;
  if (options.filter.PassesAll()) request.set_last(options.last);
  std::deque<v1::Event> past;
  const absl::Status status = session.Agent().Events(request, [&](const v1::Event& event) {
    printer.See(event);
    if (options.filter.Passes(event)) past.push_back(event);
    if (options.last != 0 && past.size() > options.last) past.pop_front();
    return true;
  });
  for (const v1::Event& event : past) {
    if (!printer.Show(event)) break;
  }
  return status;
}

absl::Status Follow(Session& session, const EventOptions& options, EventPrinter& printer) {
  v1::EventsRequest request;
  request.set_follow(true);
  request.set_after_seq(printer.seen());
  request.set_after_run(printer.run());
  return session.Agent().Events(request, [&](const v1::Event& event) {
    printer.See(event);
    return options.filter.Passes(event) ? printer.Show(event) : printer.More();
  });
}

absl::StatusOr<EventOptions> WithTimes(EventOptions options) {
  if (absl::Status status = CheckEventTypes(options.filter.types); !status.ok()) return status;
  const absl::Time now = absl::Now();
  for (const auto& [name, text, moment] : {std::tuple{"--since", options.since, &options.filter.since},
                                           {"--until", options.until, &options.filter.until}}) {
    if (text.empty()) continue;
    absl::StatusOr<absl::Time> at = ParseMoment(name, text, now);
    if (!at.ok()) return at.status();
    *moment = *at;
  }
  return options;
}

// A name that was mistyped is not the same as a peer of which nothing is to be told.
absl::Status CheckPeers(Session& session, const std::vector<std::string>& names) {
  if (names.empty()) return absl::OkStatus();
  absl::StatusOr<v1::PathsReply> paths = session.Agent().Paths(v1::PathsRequest());
  if (!paths.ok()) return paths.status();
  for (const std::string& name : names) {
    if (absl::Status status = api::CheckPeer(*paths, name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Events(Session& session, const EventOptions& typed) {
  absl::StatusOr<EventOptions> options = WithTimes(typed);
  if (!options.ok()) return options.status();
  EventPrinter printer(session, options->count);
  if (absl::Status status = ShowPast(session, *options, printer); !status.ok()) return status;
  if (printer.shown() == 0) {
    if (absl::Status status = CheckPeers(session, options->filter.peers); !status.ok()) return status;
  }
  if (options->follow && printer.More()) {
    if (absl::Status status = Follow(session, *options, printer); !status.ok()) return status;
  }
  if (printer.shown() > 0 || session.json) return kOk;
  const std::string what = options->filter.Text();
  std::cout << "no events" << (what.empty() ? "" : " " + Printable(what)) << '\n';
  return kOk;
}

}  // namespace

void AddEventVerbs(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand("events", "Verdicts, moves and changes with their evidence (times in UTC)");
  auto options = std::make_shared<EventOptions>();
  verb->add_flag("--follow,-f", options->follow, "Stay and show what comes");
  verb->add_option("--last,-n", options->last, "How many past events to show first, 0 = all")->capture_default_str();
  verb->add_option("--count", options->count, "End after so many events, 0 = never");
  verb->add_option("--type", options->filter.types,
                   "Only " + absl::StrJoin(EventTypes(), ", ") + "; several with commas or repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--peer", options->filter.peers,
                   "Only events about this peer (name); several with commas or repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--match", options->filter.matches,
                   "Only events of this flow id or peer; several with commas or repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--since", options->since,
                   "Only from then on: how long ago, such as 10m, or a time in UTC, such as 16:54 or "
                   "2026-11-20T16:54:27Z");
  verb->add_option("--until", options->until, "Only until then; written as with --since")->excludes("--follow");
  verb->callback([&session, options] { session.action = [&session, options] { return Events(session, *options); }; });
}

}  // namespace cw::cli
