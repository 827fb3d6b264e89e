// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet: what the fleet service knows of all hosts. docs/fleet.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/fleet_client.h"

namespace cw::cli {

absl::StatusOr<std::unique_ptr<api::FleetClient>> FleetOf(const Session& session) {
  if (session.fleet.empty()) {
    return absl::InvalidArgumentError(
        "which fleet service? Give --fleet HOST:PORT, or set CWFABRIC_FLEET; --cert, --key and --ca are needed, too");
  }
  api::RemoteAgent remote = session.remote;
  remote.server = session.fleet;
  return std::make_unique<api::FleetClient>(remote, session.Timeout(absl::Seconds(10)), session.Words());
}

namespace v1 = ::cwfabric::v1;

void ShowCoverage(const v1::Coverage& coverage, bool colour) {
  if (coverage.missing_size() == 0) return;
  std::cout << '\n'
            << Paint(absl::StrFormat("partial: %d of %d hosts are missing", coverage.missing_size(), coverage.hosts()),
                     Tone::kWarn, colour)
            << '\n';
  for (const std::string& missing : coverage.missing()) std::cout << "  " << Printable(missing) << '\n';
}

absl::StatusOr<int64_t> ParseAt(const std::string& text, const std::string& option) {
  if (text.empty()) return int64_t{0};
  absl::Duration ago;
  int days = 0;
  if (text[0] == '-' && text.back() == 'd' && absl::SimpleAtoi(text.substr(1, text.size() - 2), &days) && days >= 0)
    return absl::ToUnixNanos(absl::Now() - days * absl::Hours(24));
  if (text[0] == '-' && absl::ParseDuration(text.substr(1), &ago) && ago >= absl::ZeroDuration())
    return absl::ToUnixNanos(absl::Now() - ago);
  absl::Time time;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return absl::ToUnixNanos(time);
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", text, ": give a time such as 2026-05-01T12:00:00Z, or how long ago, such as -10m"));
}

absl::Status CheckHostsAreOf(int64_t at_ns, const v1::FleetHostsReply& reply) {
  if (reply.at_ns() == at_ns) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this fleet service is of a release that knows hosts of now alone: upgrade cwfleetd, or leave --at out");
}

void ShowFleetLinkTable(const v1::FleetTopologyReply& reply, bool colour) {
  Table table({"FROM", "TO", "PORT", ">PATHS", ">DEAD", ">LOST", ">QUEUE P99"});
  for (const v1::FleetLink& link : reply.links()) {
    const double share = link.sent() == 0 ? 0 : static_cast<double>(link.lost()) / static_cast<double>(link.sent());
    const Cell dead = {CountText(link.dead()), link.dead() > 0 ? Tone::kBad : Tone::kPlain};
    table.Add({link.from(), link.to(), link.port(), CountText(link.paths()), dead, ShareText(share),
               NsText(static_cast<double>(link.queue_p99_ns()))});
  }
  table.empty() ? void(std::cout << "no link is known\n") : table.Print(std::cout, colour);
  if (!table.empty())
    std::cout << "\nDEAD, LOST and QUEUE are of the whole ways that take the link, so they may be another link's\n";
  ShowCoverage(reply.coverage(), colour);
}

void ShowFleetEventTable(const v1::FleetEventsReply& reply, bool colour) {
  Table table({"TIME", "HOST", "TYPE", "WHAT"});
  for (const v1::FleetEventOf& event : reply.events()) {
    const v1::Event& what = event.event().event();
    table.Add({UtcText(event.event().time_ns()),
               event.host(),
               what.type(),
               {what.text(), what.severity() == v1::SEVERITY_ALERT ? Tone::kBad : Tone::kPlain}});
  }
  table.empty() ? void(std::cout << "no events\n") : table.Print(std::cout, colour);
  ShowCoverage(reply.coverage(), colour);
}

namespace {

struct FleetOptions {
  std::string host, type, at, from, to, id;
  bool all = false, plan = false, numeric = false;
  Session::Watch watch;
  uint64_t after = 0;
  uint32_t last = 0;
};

std::string AgoOf(int64_t then_ns) {
  return then_ns == 0 ? kNoValue : AgoText(static_cast<double>(absl::GetCurrentTimeNanos() - then_ns) / 1e9);
}

Cell BadCount(uint64_t count) { return {CountText(count), count > 0 ? Tone::kBad : Tone::kPlain}; }

absl::StatusOr<int> ShowFleetHosts(Session& session, const FleetOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(options.at);
  if (!at.ok()) return at.status();
  v1::FleetHostsRequest request;
  request.set_at_ns(*at);
  const absl::StatusOr<v1::FleetHostsReply> reply = (*client)->Hosts(request);
  if (!reply.ok()) return reply.status();
  if (absl::Status status = CheckHostsAreOf(*at, *reply); !status.ok()) return status;
  session.Show(*reply, [&] {
    if (reply->hosts().empty()) {
      std::cout << "no host has ever reported to this service; see [fleet] in cwagentd.toml(5)\n";
      return;
    }
    Table table({"HOST", "STATE", "VERSION", ">SEEN", ">UP", ">SUSPECT", ">DEAD", ">SILENT", ">PAUSED", ">REFUSED",
                 ">DROPPED"});
    for (const v1::FleetHost& host : reply->hosts()) {
      table.Add({host.host(), host.connected() ? Cell("connected", Tone::kGood) : Cell("missing", Tone::kBad),
                 host.version().empty() ? kNoValue : host.version(), AgoOf(host.last_seen_ns()), CountText(host.up()),
                 CountText(host.suspect()), BadCount(host.dead()), BadCount(host.silent()), CountText(host.paused()),
                 BadCount(host.refused()), BadCount(host.dropped_detail() + host.dropped_events())});
    }
    table.Print(std::cout, session.Colour());
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<v1::FleetTopologyReply> AskTopology(Session& session, const FleetOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(options.at);
  if (!at.ok()) return at.status();
  v1::FleetTopologyRequest request;
  request.set_at_ns(*at);
  return (*client)->Topology(request);
}

absl::StatusOr<int> ShowFleetTopology(Session& session, const FleetOptions& options) {
  const absl::StatusOr<v1::FleetTopologyReply> reply = AskTopology(session, options);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (options.plan) return ShowFleetPlan(*reply, !options.numeric);
    Table table({"SWITCH", ">TIER", ">PLANE", "RACK", "RAIL", "ADDRESSES"});
    for (const v1::FleetSwitch& s : reply->switches()) {
      table.Add({s.name(), s.tier() == 0 ? kNoValue : std::to_string(s.tier()),
                 s.plane() == 0 ? kNoValue : std::to_string(s.plane()), s.rack().empty() ? kNoValue : s.rack(),
                 s.rail().empty() ? kNoValue : s.rail(), absl::StrJoin(s.addresses(), " ")});
    }
    table.empty() ? void(std::cout << "no switch has answered a trace yet\n")
                  : table.Print(std::cout, session.Colour());
    for (const std::string& fault : reply->miswirings())
      std::cout << Paint("mis-wired  ", Tone::kBad, session.Colour()) << Printable(fault) << '\n';
    for (const std::string& conflict : reply->conflicts())
      std::cout << Paint("conflict  ", Tone::kWarn, session.Colour()) << Printable(conflict) << '\n';
    if (reply->silent_hops() > 0)
      std::cout << CountText(reply->silent_hops()) << " hops did not answer: the links beside them are not known\n";
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

absl::StatusOr<int> ShowFleetLinks(Session& session, const FleetOptions& options) {
  const absl::StatusOr<v1::FleetTopologyReply> reply = AskTopology(session, options);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { ShowFleetLinkTable(*reply, session.Colour()); });
  return kOk;
}

absl::StatusOr<int> ShowFleetEvents(Session& session, const FleetOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetEventsRequest request;
  request.set_host(options.host);
  request.set_type(options.type);
  request.set_after(options.after);
  const absl::StatusOr<int64_t> from = ParseAt(options.from, "--from"), to = ParseAt(options.to, "--to");
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  request.set_from_ns(*from);
  request.set_to_ns(*to);
  request.set_newest_first(options.after == 0);
  request.set_limit(options.last == 0 ? 50 : options.last);
  absl::StatusOr<v1::FleetEventsReply> reply = (*client)->Events(request);
  if (!reply.ok()) return reply.status();
  if (request.newest_first()) std::reverse(reply->mutable_events()->begin(), reply->mutable_events()->end());
  session.Show(*reply, [&] { ShowFleetEventTable(*reply, session.Colour()); });
  return kOk;
}

// By names, where they are known.
const std::string& PlaceOf(const v1::FleetFinding& f) { return f.place().empty() ? f.scope() : f.place(); }

void ShowFinding(const v1::FleetFinding& f, bool colour) {
  std::cout << Paint(f.cause(), f.end_ns() == 0 ? Tone::kBad : Tone::kPlain, colour) << "  " << Printable(PlaceOf(f))
            << "\nid        " << f.id() << (f.severity().empty() ? "" : "\nseverity  " + f.severity()) << "\nscope     "
            << Printable(f.scope()) << "\nsince     " << UtcText(f.start_ns()) << "\nuntil     "
            << (f.end_ns() == 0 ? "it goes on" : UtcText(f.end_ns())) << '\n';
  const auto list = [](const char* name, const auto& items) {
    for (const std::string& item : items) {
      std::cout << name << Printable(item) << '\n';
      name = "          ";
    }
  };
  list("one of    ", f.one_of());
  list("evidence  ", f.evidence());
  list("done      ", f.did());
  if (!f.hosts().empty()) std::cout << "hosts     " << Printable(absl::StrJoin(f.hosts(), " ")) << '\n';
  if (!f.jobs().empty()) std::cout << "jobs      " << Printable(absl::StrJoin(f.jobs(), " ")) << '\n';
  for (const v1::FleetLinkId& link : f.links())
    std::cout << "link      " << Printable(link.from()) << " > " << Printable(link.to()) << '\n';
  if (!f.muted_by().empty()) std::cout << "muted by  " << Printable(f.muted_by()) << '\n';
  std::cout << "to do     " << Printable(f.advice()) << '\n';
}

absl::StatusOr<int> ShowFleetFindings(Session& session, const FleetOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  const absl::StatusOr<int64_t> at = ParseAt(options.at);
  if (!at.ok()) return at.status();
  v1::FleetFindingsRequest request;
  request.set_at_ns(*at);
  request.set_all(options.all);
  request.set_id(options.id);
  request.set_limit(options.last);
  const absl::StatusOr<v1::FleetFindingsReply> reply = (*client)->Findings(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (!options.id.empty() && reply->findings_size() == 1) return ShowFinding(reply->findings(0), session.Colour());
    Table table({"ID", "SEVERITY", "SINCE", "CAUSE", "PLACE"});
    for (const v1::FleetFinding& f : reply->findings()) {
      const bool open = f.end_ns() == 0, muted = !f.muted_by().empty();
      table.Add({f.id(),
                 f.severity().empty() ? kNoValue : f.severity(),
                 AgoOf(f.start_ns()),
                 {absl::StrCat(f.cause(), open ? "" : ", over", muted ? ", muted" : ""),
                  open && !muted ? Tone::kBad : Tone::kFaint},
                 PlaceOf(f)});
    }
    table.empty() ? void(std::cout << "nothing is wrong, as far as hosts tell\n")
                  : table.Print(std::cout, session.Colour());
    if (!table.empty()) std::cout << "\nOne with its evidence and what to do: cwctl fleet findings ID\n";
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

void AddWatched(CLI::App& verb, Session& session, const std::shared_ptr<FleetOptions>& options,
                absl::StatusOr<int> (*show)(Session&, const FleetOptions&)) {
  options->watch.of_fleet = true;
  Session::AddWatch(verb, options->watch);
  verb.callback([&session, options, show] {
    session.action = [&session, options, show]() -> absl::StatusOr<int> {
      if (absl::Status status = Session::CheckWatch(options->watch, options->id); !status.ok()) return status;
      return session.Repeat(options->watch, [&] { return show(session, *options); });
    };
  });
}

void AddAt(CLI::App& verb, FleetOptions& options) {
  verb.add_option("--at", options.at, "As it was then: 2026-05-01T12:00:00Z, or how long ago: --at=-10m");
}

}  // namespace

void AddFleetVerbs(CLI::App& app, Session& session) {
  CLI::App* fleet = app.add_subcommand("fleet", "What the fleet service knows of all hosts (--fleet HOST:PORT)");
  fleet->require_subcommand(1);
  auto options = std::make_shared<FleetOptions>();
  CLI::App* hosts = fleet->add_subcommand("hosts", "Hosts, whether they are connected, and their paths by state");
  AddAt(*hosts, *options);
  AddWatched(*hosts, session, options, ShowFleetHosts);
  CLI::App* topology = fleet->add_subcommand("topology", "Switches as all hosts' traces show them; mis-wired cables");
  AddAt(*topology, *options);
  topology->add_flag("--plan", options->plan, "As a fabric_file, so that each cable that is moved later is told");
  topology->add_flag("--numeric", options->numeric, "With --plan: do not ask DNS for names of switches");
  AddWatched(*topology, session, options, ShowFleetTopology);
  CLI::App* links = fleet->add_subcommand("links", "Links of the fabric, and what the paths over each of them meet");
  AddAt(*links, *options);
  AddWatched(*links, session, options, ShowFleetLinks);
  CLI::App* findings = fleet->add_subcommand("findings", "What is wrong, where, since when, and what to do");
  findings->add_option("id", options->id, "This one alone, whole");
  findings->add_flag("--all", options->all, "Those that are over, too");
  findings->add_option("-n,--last", options->last, "At most so many, the newest; default 1000");
  AddAt(*findings, *options);
  AddWatched(*findings, session, options, ShowFleetFindings);
  CLI::App* events = fleet->add_subcommand("events", "Events of all hosts, the newest last");
  events->add_option("--host", options->host, "Of this host alone");
  events->add_option("--type", options->type, "Of this type alone: path, link, move, ...");
  events->add_option("-n,--last", options->last, "So many; default 50");
  events->add_option("--after", options->after, "In the order of their arrival, behind an earlier answer's \"next\"");
  events->add_option("--from", options->from, "Not older than 2026-05-01T12:00:00Z, or than --from=-10m");
  events->add_option("--to", options->to, "Older than that; the same forms");
  AddWatched(*events, session, options, ShowFleetEvents);
  AddFleetAlertVerbs(*fleet, session);
  AddFleetDrainVerbs(*fleet, session);
  AddFleetHostVerbs(*fleet, session);
  AddFleetCostVerbs(*fleet, session);
  AddFleetFitVerbs(*fleet, session);
  AddFleetJobVerbs(*fleet, session);
}

}  // namespace cw::cli
