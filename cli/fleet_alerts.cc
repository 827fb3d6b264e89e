// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet alerts, mute, unmute: who was told of what. docs/fleet.md.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct AlertOptions {
  std::string what, for_text, reason;
  bool all = false;
  Session::Watch watch;
};

std::string AgeText(int64_t then_ns) {
  return then_ns == 0 ? kNoValue : AgoText(static_cast<double>(absl::GetCurrentTimeNanos() - then_ns) / 1e9);
}

void ShowReceivers(const v1::FleetAlertsReply& reply, bool colour) {
  Table table({"RECEIVER", ">SENT", ">WAITING", ">FAILED", ">REFUSED", ">NO ROOM", "STATE"});
  for (const v1::FleetReceiver& r : reply.receivers()) {
    table.Add({r.name(),
               CountText(r.sent()),
               CountText(r.waiting()),
               CountText(r.failed()),
               {CountText(r.refused()), r.refused() > 0 ? Tone::kBad : Tone::kPlain},
               {CountText(r.no_room()), r.no_room() > 0 ? Tone::kBad : Tone::kPlain},
               r.fault().empty() ? Cell("takes them", Tone::kGood) : Cell(r.fault(), Tone::kBad)});
  }
  table.empty() ? void(std::cout << "nobody is told: see [alerts] in cwfleetd --default-config\n")
                : table.Print(std::cout, colour);
}

void ShowMutes(const v1::FleetAlertsReply& reply, bool colour) {
  if (reply.mutes().empty()) return;
  Table table({"MUTED", ">SINCE", ">ENDS IN", "BY", "REASON"});
  for (const v1::FleetMute& mute : reply.mutes()) {
    table.Add({mute.what(), AgeText(mute.start_ns()),
               DurationText(static_cast<double>(mute.end_ns() - absl::GetCurrentTimeNanos()) / 1e9), mute.who(),
               mute.reason().empty() ? kNoValue : mute.reason()});
  }
  std::cout << '\n';
  table.Print(std::cout, colour);
}

absl::StatusOr<int> ShowFleetAlerts(Session& session, const AlertOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetAlertsRequest request;
  request.set_all(options.all);
  const absl::StatusOr<v1::FleetAlertsReply> reply = (*client)->Alerts(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    ShowReceivers(*reply, session.Colour());
    Table table({"FINDING", "CAUSE", "SCOPE", "TOLD", ">SINCE", ">DELIVERED", "RECEIVER", "RESULT"});
    for (const v1::FleetAlert& alert : reply->alerts()) {
      table.Add({alert.finding(), alert.cause(), alert.scope(), alert.open() ? "open" : "over",
                 AgeText(alert.since_ns()), AgeText(alert.delivered_ns()), alert.receiver(),
                 Cell(alert.result(), alert.result() == "delivered" ? Tone::kGood : Tone::kWarn)});
    }
    if (!table.empty()) std::cout << '\n';
    if (!table.empty()) table.Print(std::cout, session.Colour());
    ShowMutes(*reply, session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> MuteFinding(Session& session, const AlertOptions& options) {
  const absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetMuteRequest request;
  request.set_what(options.what);
  request.set_for_s(*for_s);
  request.set_reason(options.reason);
  const absl::StatusOr<v1::FleetActionReply> reply = (*client)->Mute(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { std::cout << Printable(reply->effect()) << '\n'; });
  return kOk;
}

absl::StatusOr<int> UnmuteFinding(Session& session, const AlertOptions& options) {
  if (options.what.empty() != options.all)
    return absl::InvalidArgumentError("say what: as it was muted (cwctl fleet alerts), or --all");
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetUnmuteRequest request;
  request.set_what(options.what);
  request.set_all(options.all);
  const absl::StatusOr<v1::FleetActionReply> reply = (*client)->Unmute(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { std::cout << Printable(reply->effect()) << '\n'; });
  return kOk;
}

}  // namespace

void AddFleetAlertVerbs(CLI::App& fleet, Session& session) {
  auto options = std::make_shared<AlertOptions>();
  CLI::App* alerts = fleet.add_subcommand("alerts", "What Alertmanagers and webhooks were told, and what is muted");
  alerts->add_flag("--all", options->all, "Those that are over, too");
  options->watch.of_fleet = true;
  Session::AddWatch(*alerts, options->watch);
  alerts->callback([&session, options] {
    session.action = [&session, options] {
      return session.Repeat(options->watch, [&] { return ShowFleetAlerts(session, *options); });
    };
  });
  CLI::App* mute =
      fleet.add_subcommand("mute", "Alarm nobody by a finding, or by what is wrong with a part, for a while");
  mute->add_option("what", options->what, "A finding's id, or a scope as in cwctl fleet findings: \"switch spine1\"")
      ->required();
  mute->add_option("--for", options->for_text, "For how long, such as 8h")->required();
  mute->add_option("--reason", options->reason, "Why, for people");
  mute->callback(
      [&session, options] { session.action = [&session, options] { return MuteFinding(session, *options); }; });
  CLI::App* unmute = fleet.add_subcommand("unmute", "End a mute before its time");
  unmute->add_option("what", options->what, "As it was muted");
  unmute->add_flag("--all", options->all, "Everything that was muted");
  unmute->callback(
      [&session, options] { session.action = [&session, options] { return UnmuteFinding(session, *options); }; });
}

}  // namespace cw::cli
