// SPDX-License-Identifier: Apache-2.0
//
// cwctl fleet drain, undrain, drains: everybody's flows off what is to be pulled. docs/fleet.md.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/fleet.h"
#include "cli/format.h"
#include "cli/table.h"
#include "userspace/api/json.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct FleetDrainOptions {
  std::string name, for_text, reason;
  bool now = false, no_wait = false, all = false;
};

size_t CountOf(const v1::FleetDrain& drain, const std::string& state) {
  size_t count = 0;
  for (const v1::FleetDrainHost& host : drain.hosts()) count += host.state() == state;
  return count;
}

bool IsStuck(const v1::FleetDrainHost& host) {
  return host.state() == "refused" || host.state() == "not allowed" || host.state() == "not connected";
}

std::string StateText(const v1::FleetDrain& drain) {
  if (drain.state() == "safe")
    return absl::StrCat("safe to pull: ", Counted(static_cast<size_t>(drain.hosts_size()), "host"), " say so");
  uint64_t flows = 0;
  std::vector<std::string> stuck;
  for (const v1::FleetDrainHost& host : drain.hosts()) {
    flows += host.flows();
    if (IsStuck(host)) stuck.push_back(host.host());
  }
  std::string text = absl::StrFormat("%d of %s safe, %s on it", CountOf(drain, "safe"),
                                     Counted(static_cast<size_t>(drain.hosts_size()), "host"), Counted(flows, "flow"));
  if (!stuck.empty()) absl::StrAppend(&text, "; not by themselves: ", absl::StrJoin(stuck, " "));
  return text;
}

void ShowStuck(const v1::FleetDrain& drain, bool colour) {
  for (const v1::FleetDrainHost& host : drain.hosts()) {
    if (IsStuck(host))
      std::cout << Paint(Printable(host.host()), Tone::kBad, colour) << "  " << host.state() << ": "
                << Printable(host.words()) << '\n';
  }
}

void ShowDrain(const v1::FleetDrain& drain, bool colour) {
  std::cout << drain.kind() << ' ' << Printable(drain.name()) << "\nid      " << drain.id() << "\nsince   "
            << UtcText(drain.start_ns()) << ", by " << Printable(drain.who());
  if (!drain.reason().empty()) std::cout << ": " << Printable(drain.reason());
  std::cout << "\nuntil   " << (drain.end_ns() == 0 ? "undrain" : UtcText(drain.end_ns())) << "\nports   "
            << absl::StrJoin(drain.addresses(), " ") << "\nstate   " << StateText(drain) << '\n';
  if (!drain.note().empty()) std::cout << "note    " << Printable(drain.note()) << '\n';
  Table table({"HOST", "STATE", ">FLOWS", ">MOVED", "WHAT IT SAYS"});
  for (const v1::FleetDrainHost& host : drain.hosts()) {
    const Tone tone = IsStuck(host) ? Tone::kBad : host.state() == "safe" ? Tone::kGood : Tone::kWarn;
    std::string words = host.words();
    if (!host.held().empty()) absl::StrAppend(&words, "; stay: ", absl::StrJoin(host.held(), " "));
    table.Add({host.host(), {host.state(), tone}, CountText(host.flows()), CountText(host.flows_moved()), words});
  }
  if (!table.empty()) table.Print(std::cout, colour);
}

void ShowJsonLine(const google::protobuf::Message& message) {
  std::cout << api::ToJson(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

absl::StatusOr<v1::FleetDrain> FindDrain(api::FleetClient& client, const std::string& id) {
  const absl::StatusOr<v1::FleetDrainsReply> reply = client.Drains();
  if (!reply.ok()) return reply.status();
  for (const v1::FleetDrain& drain : reply->drains()) {
    if (drain.id() == id || drain.name() == id) return drain;
  }
  return absl::NotFoundError(absl::StrCat(id, " is not drained; see cwctl fleet drains"));
}

// Until all hosts say that it is safe, or one has said that it will not be, and the others all said something.
absl::StatusOr<int> WatchDrain(Session& session, api::FleetClient& client, v1::FleetDrain drain) {
  std::string shown;
  while (std::cout) {
    const std::string text = StateText(drain);
    if (session.json) {
      ShowJsonLine(drain);
    } else if (text != shown) {
      std::cout << Printable(text) << std::endl;
    }
    shown = text;
    if (drain.state() == "safe") return kOk;
    if (drain.state() == "refused" && CountOf(drain, "asked") + CountOf(drain, "under way") == 0) {
      if (!session.json) {
        ShowStuck(drain, session.Colour());
        std::cout << "the others keep it free; to end that: cwctl fleet undrain " << drain.id() << std::endl;
      }
      return kFailed;
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    absl::StatusOr<v1::FleetDrain> next = FindDrain(client, drain.id());
    if (!next.ok()) return next.status();
    drain = *std::move(next);
  }
  return kFailed;
}

absl::StatusOr<int> DrainFleet(Session& session, const FleetDrainOptions& options, const std::string& kind) {
  const absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetDrainRequest request;
  request.set_kind(kind);
  request.set_name(options.name);
  request.set_for_s(*for_s);
  request.set_reason(options.reason);
  request.set_now(options.now);
  const absl::StatusOr<v1::FleetDrain> drain = (*client)->Drain(request);
  if (!drain.ok()) return drain.status();
  if (!session.json) {
    std::cout << kind << ' ' << Printable(drain->name()) << ": "
              << Counted(static_cast<size_t>(drain->hosts_size()), "host")
              << " concerned; to end it: cwctl fleet undrain " << drain->id() << std::endl;
    if (!drain->note().empty()) std::cout << Printable(drain->note()) << std::endl;
  }
  if (!options.no_wait) return WatchDrain(session, **client, *drain);
  if (session.json) ShowJsonLine(*drain);
  return kOk;
}

absl::StatusOr<int> UndrainFleet(Session& session, const FleetDrainOptions& options) {
  if (options.name.empty() != options.all)
    return absl::InvalidArgumentError("say what: its name or id (cwctl fleet drains), or --all");
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  v1::FleetUndrainRequest request;
  request.set_name(options.name);
  request.set_all(options.all);
  const absl::StatusOr<v1::FleetActionReply> reply = (*client)->Undrain(request);
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { std::cout << Printable(reply->effect()) << '\n'; });
  return kOk;
}

absl::StatusOr<int> ListFleetDrains(Session& session, const FleetDrainOptions& options) {
  const auto client = FleetOf(session);
  if (!client.ok()) return client.status();
  if (!options.name.empty()) {
    const absl::StatusOr<v1::FleetDrain> drain = FindDrain(**client, options.name);
    if (!drain.ok()) return drain.status();
    session.Show(*drain, [&] { ShowDrain(*drain, session.Colour()); });
    return kOk;
  }
  const absl::StatusOr<v1::FleetDrainsReply> reply = (*client)->Drains();
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    Table table({"ID", "WHAT", ">SINCE", ">ENDS IN", "BY", "REASON", "STATE"});
    for (const v1::FleetDrain& drain : reply->drains()) {
      const auto now_ns = absl::GetCurrentTimeNanos();
      const Tone tone = drain.state() == "safe" ? Tone::kGood : drain.state() == "refused" ? Tone::kBad : Tone::kWarn;
      table.Add({drain.id(),
                 absl::StrCat(drain.kind(), " ", drain.name()),
                 DurationText(static_cast<double>(now_ns - drain.start_ns()) / 1e9),
                 drain.end_ns() == 0 ? kNoValue : DurationText(static_cast<double>(drain.end_ns() - now_ns) / 1e9),
                 drain.who(),
                 drain.reason().empty() ? kNoValue : drain.reason(),
                 {StateText(drain), tone}});
    }
    table.empty() ? void(std::cout << "nothing is drained\n") : table.Print(std::cout, session.Colour());
    if (!table.empty()) std::cout << "\nOne with what each host says: cwctl fleet drains ID\n";
    ShowCoverage(reply->coverage(), session.Colour());
  });
  return kOk;
}

void AddFleetKind(CLI::App& group, Session& session, const char* kind, const char* what, const char* text) {
  auto options = std::make_shared<FleetDrainOptions>();
  CLI::App* verb = group.add_subcommand(kind, text);
  verb->add_option("name", options->name, what)->required();
  verb->add_option("--for", options->for_text, "It ends by itself after this time, such as 2h, on hosts, too");
  verb->add_option("--reason", options->reason, "Why, for people");
  verb->add_flag("--now", options->now,
                 "Flows leave with their next packet, at the price of one go-back-N; and though nothing may remain");
  verb->add_flag("--no-wait", options->no_wait, "Do not wait until all hosts say that it is safe");
  verb->callback([&session, options, kind] {
    session.action = [&session, options, kind] { return DrainFleet(session, *options, kind); };
  });
}

}  // namespace

void AddFleetDrainVerbs(CLI::App& fleet, Session& session) {
  CLI::App* drain = fleet.add_subcommand(
      "drain",
      "Move all hosts' flows off what is to be pulled, and wait until it is safe ([fleet] allow of the hosts)");
  drain->require_subcommand(1);
  AddFleetKind(*drain, session, "link", "Address of the port where it ends: PORT in cwctl fleet links",
               "A cable: this direction, and the other one where it can be told");
  AddFleetKind(*drain, session, "switch", "Its name, or one of its addresses, as in cwctl fleet topology", "A switch");
  AddFleetKind(*drain, session, "host", "Its name, as in cwctl fleet hosts",
               "A host: its flows cannot leave it, so this waits until they end, and mutes findings of it");

  auto options = std::make_shared<FleetDrainOptions>();
  CLI::App* undrain = fleet.add_subcommand("undrain", "Let flows use again what was drained");
  undrain->add_option("name", options->name,
                      "As it was drained, a finding's scope, one of its addresses, or the drain's id");
  undrain->add_flag("--all", options->all, "Everything that is drained over the fleet");
  undrain->callback(
      [&session, options] { session.action = [&session, options] { return UndrainFleet(session, *options); }; });
  CLI::App* list = fleet.add_subcommand("drains", "What is drained over the fleet, and what hosts say of it");
  list->add_option("id", options->name, "This one alone, with each host");
  list->callback(
      [&session, options] { session.action = [&session, options] { return ListFleetDrains(session, *options); }; });
}

}  // namespace cw::cli
