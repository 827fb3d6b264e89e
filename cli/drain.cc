// SPDX-License-Identifier: Apache-2.0
//
// cwctl drain, cwctl undrain.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/json.h"
#include "userspace/model/counted.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

constexpr int kSafeAfterS = 10;  // as the agent has it

struct DrainOptions {
  std::string what;
  std::string for_text;
  bool now = false;
  bool no_wait = false;
  bool all = false;
};

std::string KindText(v1::DrainKind kind) {
  switch (kind) {
    case v1::DRAIN_KIND_PATH:
      return "path";
    case v1::DRAIN_KIND_LINK:
      return "link";
    case v1::DRAIN_KIND_SPINE:
      return "spine";
    case v1::DRAIN_KIND_NIC:
      return "nic";
    default:
      return "";
  }
}

std::string SafeText(const v1::Drain& drain) {
  if (drain.safe()) return "safe to pull (as far as this host is concerned)";
  if (drain.quiet_s() < 1) return "not yet";
  if (drain.quiet_s() >= kSafeAfterS && !drain.obstacles().empty())
    return "not safe: " + absl::StrJoin(drain.obstacles(), "; ");
  return absl::StrFormat("silent for %.0f s of %d", drain.quiet_s(), kSafeAfterS);
}

std::string StayText(const v1::Drain& drain) {
  std::vector<std::string> parts;
  if (!drain.held().empty())
    parts.push_back(absl::StrCat("stay: ", absl::StrJoin(drain.held(), " "),
                                 " (locked hard, nowhere to go, or nobody can move them)"));
  if (drain.flows_unknown() > 0)
    parts.push_back(Counted(drain.flows_unknown(), "flow") + " on paths that may cross it");
  if (drain.paths_unknown() > 0)
    parts.push_back(Counted(drain.paths_unknown(), "path") + " may cross it: switches do not answer");
  return absl::StrJoin(parts, "; ");
}

void ShowRound(Session& session, const v1::Drain& drain) {
  if (session.json) {
    std::cout << api::ToJson(drain).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return;
  }
  const std::string stay = StayText(drain);
  std::cout << Printable(absl::StrFormat("%s/s over it, %s on it, %d moved: %s%s", BytesText(drain.bytes_per_s()),
                                         Counted(drain.flows(), "flow"), drain.flows_moved(), SafeText(drain),
                                         stay.empty() ? "" : "; " + stay))
            << std::endl;
}

// Until nothing was sent for long enough. In JSON each round is a line, behind that of the action.
absl::StatusOr<int> Watch(Session& session, const std::string& what) {
  while (std::cout) {
    absl::StatusOr<v1::DrainsReply> reply = session.Agent().Drains();
    if (!reply.ok()) return reply.status();
    const v1::Drain* found = nullptr;
    for (const v1::Drain& drain : reply->drains()) {
      if (drain.what() == what) found = &drain;
    }
    if (found == nullptr) return absl::AbortedError(absl::StrCat(what, " is drained no longer"));
    ShowRound(session, *found);
    if (found->safe()) return kOk;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return kFailed;
}

absl::StatusOr<int> Drain(Session& session, const DrainOptions& options, v1::DrainKind kind) {
  absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  v1::DrainRequest request;
  request.set_kind(kind);
  request.set_what(options.what);
  request.set_for_s(*for_s);
  request.set_now(options.now);
  absl::StatusOr<v1::ActionReply> reply = session.Agent().Drain(request);
  if (!reply.ok()) return reply.status();
  if (!session.json || options.no_wait) {
    session.ShowAction(*reply);
  } else {
    std::cout << api::ToJson(*reply).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  // The agent may write an address in another form than it was typed in.
  const std::string what = reply->undo().substr(std::string("undrain ").size());
  return options.no_wait ? absl::StatusOr<int>(kOk) : Watch(session, what);
}

absl::StatusOr<int> ListDrains(Session& session) {
  absl::StatusOr<v1::DrainsReply> reply = session.Agent().Drains();
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (reply->drains().empty()) {
      std::cout << "nothing is drained\n";
      return;
    }
    Table table({"WHAT", ">PATHS", ">FLOWS", ">MOVED", ">BYTES/S", "STATE", ">SINCE", ">ENDS IN", "NOTE"});
    for (const v1::Drain& drain : reply->drains()) {
      table.Add({absl::StrCat(KindText(drain.kind()), " ", drain.what()),
                 std::to_string(drain.paths()),
                 std::to_string(drain.flows()),
                 std::to_string(drain.flows_moved()),
                 BytesText(drain.bytes_per_s()),
                 {SafeText(drain), drain.safe() ? Tone::kGood : Tone::kWarn},
                 DurationText(drain.age_s()),
                 drain.reverts_s() > 0 ? DurationText(drain.reverts_s()) : kNoValue,
                 StayText(drain)});
    }
    table.Print(std::cout, session.Colour());
    if (reply->nothing_moves())
      std::cout << "the mode is " << ModeText(reply->mode())
                << ": flows are on their native ports, and may cross what is drained\n";
  });
  return kOk;
}

absl::StatusOr<int> Undrain(Session& session, const DrainOptions& options) {
  v1::UndrainRequest request;
  request.set_what(options.what);
  request.set_all(options.all);
  absl::StatusOr<v1::ActionReply> reply = session.Agent().Undrain(request);
  if (!reply.ok()) return reply.status();
  session.ShowAction(*reply);
  return kOk;
}

void AddKind(CLI::App& group, Session& session, v1::DrainKind kind, const char* name, const char* what,
             const char* text) {
  auto options = std::make_shared<DrainOptions>();
  CLI::App* verb = group.add_subcommand(name, text);
  verb->add_option("what", options->what, what)->required();
  verb->add_option("--for", options->for_text, "The agent gives it back after this time, such as 30m");
  verb->add_flag("--now", options->now,
                 "Flows leave with their next packet, at the price of one go-back-N; and though nothing may remain");
  verb->add_flag("--no-wait", options->no_wait, "Do not watch until it is silent");
  verb->callback([&session, options, kind] {
    session.action = [&session, options, kind] { return Drain(session, *options, kind); };
  });
}

}  // namespace

void AddDrainVerbs(CLI::App& app, Session& session) {
  CLI::App* drain = app.add_subcommand(
      "drain", "Move everything of this host off what is to be pulled, and watch until it is silent");
  drain->require_subcommand(1);
  AddKind(*drain, session, v1::DRAIN_KIND_PATH, "path", "PEER/PATH, such as host3/2", "One path to a peer");
  AddKind(*drain, session, v1::DRAIN_KIND_LINK, "link", "Address of the port where it ends: TO in cwctl links",
          "A link of the fabric");
  AddKind(*drain, session, v1::DRAIN_KIND_SPINE, "spine", "Its address, as among the HOPS of cwctl paths", "A switch");
  AddKind(
      *drain, session, v1::DRAIN_KIND_NIC, "nic", "Its name, as in cwctl status",
      "A NIC of this host: by NIC failover where that is on, else queue pairs cannot leave it and this only watches");
  drain->add_subcommand("list", "What is drained")->callback([&session] {
    session.action = [&session] { return ListDrains(session); };
  });

  auto options = std::make_shared<DrainOptions>();
  CLI::App* undrain = app.add_subcommand("undrain", "Let flows use again what was drained; those that left it go back");
  undrain->add_option("what", options->what, "As it was drained; see cwctl drain list");
  undrain->add_flag("--all", options->all, "Everything that is drained");
  undrain->callback(
      [&session, options] { session.action = [&session, options] { return Undrain(session, *options); }; });
}

}  // namespace cw::cli
