// SPDX-License-Identifier: Apache-2.0
//
// cwctl incident: what all hosts involved saw around a failure. show and replay of a file need no service.
#include "cli/incident.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/incident_client.h"
#include "userspace/fleet/incidents/bundle.h"
#include "userspace/fleet/incidents/replay.h"
#include "userspace/fleet/incidents/view.h"
#include "userspace/fleet/rules/rules_file.h"
#include "userspace/model/regular_file.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct IncidentOptions {
  std::string finding, at, for_text, reason, what, file, rules;
  std::vector<std::string> hosts;
  bool all = false;
};

absl::StatusOr<std::unique_ptr<api::IncidentClient>> IncidentsOf(const Session& session) {
  if (absl::Status named = FleetOf(session).status(); !named.ok()) return named;
  api::RemoteAgent remote = session.remote;
  remote.server = session.fleet;
  return std::make_unique<api::IncidentClient>(remote, session.Timeout(absl::Seconds(60)));
}

// Half of --for before --at, half behind it.
absl::Status FillSpan(const IncidentOptions& options, v1::IncidentTakeRequest& request) {
  if (options.at.empty() && options.for_text.empty()) return absl::OkStatus();
  const absl::StatusOr<double> for_s = ParseFor(options.for_text.empty() ? "10m" : options.for_text);
  if (!for_s.ok()) return for_s.status();
  const absl::StatusOr<int64_t> at = ParseAt(options.at);
  if (!at.ok()) return at.status();
  const int64_t middle = *at == 0 ? absl::GetCurrentTimeNanos() : *at;
  const auto half = static_cast<int64_t>(*for_s * 0.5e9);
  request.set_from_ns(middle - half);
  request.set_to_ns(middle + half);
  return absl::OkStatus();
}

absl::StatusOr<int> TakeIncident(Session& session, const IncidentOptions& options) {
  if (options.finding.empty() && options.hosts.empty())
    return absl::InvalidArgumentError("of what? Give --finding ID (cwctl fleet findings), or --host, --at and --for");
  v1::IncidentTakeRequest request;
  request.set_finding(options.finding);
  request.set_reason(options.reason);
  for (const std::string& host : options.hosts) request.add_hosts(host);
  IncidentOptions span = options;
  if (options.finding.empty() && options.for_text.empty()) span.for_text = "10m";
  if (absl::Status status = FillSpan(span, request); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<api::IncidentClient>> client = IncidentsOf(session);
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::Incident> begun = (*client)->Take(request);
  if (!begun.ok()) return begun.status();
  session.ForPeople(*begun);
  session.Show(*begun, [&] {
    std::cout << "incident " << begun->id() << " is taken of " << begun->hosts_size() << " hosts, until "
              << UtcText(begun->to_ns()) << "\nsee cwctl incident list, then cwctl incident show " << begun->id()
              << '\n';
  });
  return kOk;
}

absl::StatusOr<int> ListIncidents(Session& session) {
  const absl::StatusOr<std::unique_ptr<api::IncidentClient>> client = IncidentsOf(session);
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::IncidentListReply> reply = (*client)->List();
  if (!reply.ok()) return reply.status();
  session.ForPeople(*reply);
  session.Show(*reply, [&] { ShowIncidentList(*reply, session.Colour()); });
  return kOk;
}

// A file of this name, or one that the service has.
absl::StatusOr<fleet::Bundle> BundleOf(Session& session, const std::string& what) {
  std::error_code none;
  if (std::filesystem::exists(what, none)) return fleet::LoadBundle(what);
  if (session.fleet.empty())
    return absl::NotFoundError(
        absl::StrCat("there is no file ", what, "; for an incident's id give --fleet HOST:PORT"));
  const absl::StatusOr<std::unique_ptr<api::IncidentClient>> client = IncidentsOf(session);
  if (!client.ok()) return client.status();
  std::string bytes;
  const absl::Status fetched = (*client)->Fetch(what, [&](const std::string& piece) {
    bytes += piece;
    return true;
  });
  if (!fetched.ok()) return fetched;
  return fleet::ReadBundle(bytes);
}

absl::StatusOr<int> ShowIncident(Session& session, const IncidentOptions& options) {
  const absl::StatusOr<fleet::Bundle> bundle = BundleOf(session, options.what);
  if (!bundle.ok()) return bundle.status();
  v1::IncidentView view = fleet::ViewOf(*bundle);
  session.ForPeople(view);
  session.Show(view, [&] { ShowIncidentView(view, options.all, session.Colour()); });
  return kOk;
}

absl::StatusOr<int> ExportIncident(Session& session, const IncidentOptions& options) {
  const absl::StatusOr<std::unique_ptr<api::IncidentClient>> client = IncidentsOf(session);
  if (!client.ok()) return client.status();
  const std::string part = options.file + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  if (!file) return absl::PermissionDeniedError(absl::StrCat("cannot write ", part));
  absl::Status status = (*client)->Fetch(options.what, [&](const std::string& piece) {
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    return static_cast<bool>(file);
  });
  file.close();
  if (!file) status = absl::ResourceExhaustedError(absl::StrCat("cannot write all of ", part, ": is the disk full?"));
  if (status.ok()) status.Update(fleet::ReadHead(part).status());
  if (status.ok() && rename(part.c_str(), options.file.c_str()) != 0)
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", options.file));
  if (!status.ok()) unlink(part.c_str());
  if (!status.ok()) return status;
  absl::StatusOr<v1::Incident> head = fleet::ReadHead(options.file);
  if (!head.ok()) return head.status();
  session.ForPeople(*head);
  session.Show(*head,
               [&] { std::cout << Printable(options.file) << " has incident " << Printable(head->id()) << '\n'; });
  return kOk;
}

absl::StatusOr<int> ReplayIncident(Session& session, const IncidentOptions& options) {
  const absl::StatusOr<fleet::Bundle> bundle = BundleOf(session, options.what);
  if (!bundle.ok()) return bundle.status();
  std::string rules_text = bundle->head.rules();
  if (!options.rules.empty()) {
    const absl::StatusOr<std::string> text = ReadRegularFile(options.rules);
    if (!text.ok()) return text.status();
    rules_text = *text;
  }
  const absl::StatusOr<fleet::Rules> rules =
      fleet::ReadRules(rules_text, options.rules.empty() ? "the incident's rules" : options.rules);
  if (!rules.ok()) return rules.status();
  const absl::StatusOr<fleet::FleetFile> fabric = fleet::ReadFleetFile(bundle->head.fabric(), "the incident's fabric");
  if (!fabric.ok()) return fabric.status();
  v1::IncidentReplay replay = fleet::Replay(*bundle, *fabric, rules->findings);
  session.ForPeople(replay);
  session.Show(replay, [&] { ShowIncidentReplay(replay, session.Colour()); });
  return kOk;
}

}  // namespace

void AddIncidentVerbs(CLI::App& app, Session& session) {
  auto options = std::make_shared<IncidentOptions>();
  CLI::App* incident = app.add_subcommand("incident", "What all hosts involved saw around a failure, second by second");
  incident->require_subcommand(1);
  const auto verb = [&](const char* name, const char* help,
                        absl::StatusOr<int> (*run)(Session&, const IncidentOptions&)) {
    CLI::App* made = incident->add_subcommand(name, help);
    made->callback(
        [&session, options, run] { session.action = [&session, options, run] { return run(session, *options); }; });
    return made;
  };
  CLI::App* take = verb("take", "Take one: of a finding, or of hosts at a time", TakeIncident);
  take->add_option("--finding", options->finding, "A finding's id (cwctl fleet findings)");
  take->add_option("--host", options->hosts, "Hosts that it is about, beside the finding's");
  take->add_option("--at", options->at, "The moment: 2026-05-01T12:00:00Z, or --at=-10m; now if it is not given");
  take->add_option("--for", options->for_text, "How long, half of it before and half behind the moment; 10m");
  take->add_option("--reason", options->reason, "Why, for people");
  verb("list", "Those that are there, and those that are being taken",
       [](Session& s, const IncidentOptions&) { return ListIncidents(s); });
  CLI::App* show = verb("show", "What changed first, paths before and after, delays per second", ShowIncident);
  show->add_option("what", options->what, "An incident's id, or a file that export made")->required();
  show->add_flag("--all", options->all, "Every change, path and second");
  CLI::App* out = verb("export", "Get one as a file", ExportIncident);
  out->add_option("id", options->what, "The incident's id")->required();
  out->add_option("file", options->file, "Where to")->required();
  CLI::App* replay = verb("replay", "Find causes in one again, with the code of cwfleetd, without it", ReplayIncident);
  replay->add_option("what", options->what, "A file that export made, or an incident's id")->required();
  replay->add_option("--rules", options->rules, "Rules in place of those that were in force (cwfleetd --default-rules)")
      ->type_name("FILE");
}

}  // namespace cw::cli
