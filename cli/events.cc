// SPDX-License-Identifier: Apache-2.0
//
// cwctl events.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/json.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct EventOptions {
  bool follow = false;
  uint32_t last = 50;
  uint64_t count = 0;
  std::string type;
  std::string match;
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

// One line per event in both forms; lost events are told, in JSON by the jump of seq.
absl::StatusOr<int> Events(Session& session, const EventOptions& options) {
  v1::EventsRequest request;
  request.set_follow(options.follow);
  request.set_last(options.last);
  request.set_type(options.type);
  request.set_match(options.match);
  const bool all = options.type.empty() && options.match.empty();
  uint64_t previous = 0, shown = 0;
  const absl::Status status = session.Agent().Events(request, [&](const v1::Event& event) {
    if (session.json) {
      std::cout << api::ToJson(event).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    } else {
      if (all && previous != 0 && event.seq() > previous + 1) {
        std::cout << absl::StrFormat("  … %d events lost …\n", event.seq() - previous - 1);
      }
      ShowEvent(event, session.Colour());
    }
    previous = event.seq();
    ++shown;
    return static_cast<bool>(std::cout) && shown != options.count;
  });
  if (!status.ok()) return status;
  if (shown == 0 && !session.json) std::cout << "no events\n";
  return kOk;
}

}  // namespace

void AddEventVerbs(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand("events", "Verdicts, moves and changes with their evidence (times in UTC)");
  auto options = std::make_shared<EventOptions>();
  verb->add_flag("--follow,-f", options->follow, "Stay and show what comes");
  verb->add_option("--last,-n", options->last, "How many past events to show first, 0 = all")->capture_default_str();
  verb->add_option("--count", options->count, "End after so many events, 0 = never");
  verb->add_option(
      "--type", options->type,
      "Only path, move, return, repair, decision, trial, breaker, flow, place, mode, steer, drain, link, nic, "
      "rdma, clock, fabric, cause, gap, job or agent");
  verb->add_option("--match", options->match, "Only events of this flow id or peer");
  verb->callback([&session, options] { session.action = [&session, options] { return Events(session, *options); }; });
}

}  // namespace cw::cli
