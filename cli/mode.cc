// SPDX-License-Identifier: Apache-2.0
//
// cwctl mode, cwctl off.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/format.h"
#include "cli/off_proof.h"
#include "cli/offline.h"
#include "cli/session.h"
#include "cli/table.h"
#include "maps/names.h"
#include "userspace/deadlines/deadlines.h"
#include "userspace/model/allowed.h"
#include "userspace/model/boot_id.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct ModeOptions {
  std::vector<std::string> words;  // MODE, CAPABILITY=WHAT
  std::string for_text;
  std::string nic, label;  // it is for this one alone
  std::optional<uint32_t> rail;
  bool narrow() const { return !nic.empty() || !label.empty() || rail.has_value(); }
};

// An agent that hangs must not keep flows from going back: after this the switch is made without it.
constexpr absl::Duration kOffPatience = absl::Milliseconds(800);
constexpr std::chrono::seconds kProofSpan{1};

v1::Mode ModeOf(const std::string& word) {
  if (word == "observe") return v1::MODE_OBSERVE;
  if (word == "protect") return v1::MODE_PROTECT;
  if (word == "optimize") return v1::MODE_OPTIMIZE;
  return v1::MODE_OFF;
}

v1::Allow AllowOf(const std::string& word, bool& known) {
  known = word == "mode" || word == "off" || word == "observe" || word == "act";
  if (word == "off") return v1::ALLOW_OFF;
  if (word == "observe") return v1::ALLOW_OBSERVE;
  return word == "act" ? v1::ALLOW_ACT : v1::ALLOW_MODE;
}

absl::StatusOr<v1::SetModeRequest> ParseWords(const std::vector<std::string>& words) {
  v1::SetModeRequest request;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      const v1::Mode mode = ModeOf(word);
      if (mode == v1::MODE_OFF && word != "off")
        return absl::InvalidArgumentError(
            absl::StrCat("there is no mode ", word, "; choose observe, protect, optimize or off"));
      if (request.mode() != v1::MODE_UNSPECIFIED) return absl::InvalidArgumentError("give one mode only");
      request.set_mode(mode);
      continue;
    }
    const std::string name = word.substr(0, equals);
    bool known = false;
    const v1::Allow allow = AllowOf(word.substr(equals + 1), known);
    if (!ParseCapability(name) || !known) {
      return absl::InvalidArgumentError(
          absl::StrCat(word,
                       ": CAPABILITY=WHAT is wanted, a capability being failover, loss, tails, balance, place or "
                       "nic, and WHAT mode, off, observe or act"));
    }
    v1::CapabilityAllow* out = request.add_allowed();
    out->set_capability(name);
    out->set_allow(allow);
  }
  return request;
}

// Modes for NICs, rails and jobs.
void ShowScopes(const Session& session, const v1::StatusReply& status) {
  Table table({"FOR", "AT MOST", "SET BY", "REVERTS IN"});
  for (const v1::ModeScope& scope : status.scopes()) {
    table.Add({Printable(scope.text()),
               {ModeText(scope.mode()), scope.holds_back() ? Tone::kWarn : Tone::kPlain},
               scope.by_operator() ? "operator" : "[[scope]]",
               scope.reverts_s() > 0 ? DurationText(scope.reverts_s()) : ""});
  }
  if (!table.empty()) table.Print(std::cout, session.Colour());
}

absl::StatusOr<int> ShowMode(Session& session) {
  absl::StatusOr<v1::StatusReply> status = session.Agent().Status();
  if (!status.ok()) return status.status();
  v1::PresentMode present;  // in the shape in which it is set
  present.set_mode(status->mode());
  present.set_for_s(status->mode_reverts_s());
  *present.mutable_allowed() = status->allowed();
  *present.mutable_scopes() = status->scopes();
  session.Show(present, [&] {
    std::cout << ModeText(status->mode());
    if (status->mode_reverts_s() > 0) std::cout << ", reverts in " << DurationText(status->mode_reverts_s());
    std::cout << '\n';
    Table table({"CAPABILITY", "MAY", "BY THE MODE"});
    for (const v1::CapabilityAllow& each : status->allowed()) {
      table.Add({each.capability(),
                 {AllowText(each.allow()), each.allow() == each.by_mode() ? Tone::kPlain : Tone::kWarn},
                 AllowText(each.by_mode())});
    }
    if (!table.empty()) table.Print(std::cout, session.Colour());
    ShowScopes(session, *status);
  });
  return kOk;
}

// An agent that is older than scopes would take the mode for the whole host.
absl::Status CheckKnowsScopes(Session& session) {
  const absl::StatusOr<v1::StatusReply> status = session.Agent().Status();
  if (!status.ok()) return status.status();
  if (status->version() == CW_VERSION) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the agent is version %s and this cwctl %s: a mode of a NIC, a rail or a label is set only where both are the "
      "same; restart the agent, or use the cwctl of its host",
      status->version(), CW_VERSION));
}

absl::StatusOr<int> Mode(Session& session, const ModeOptions& options) {
  absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  if (options.words.empty()) {
    if (!options.for_text.empty()) return absl::InvalidArgumentError("--for needs a mode to hold for that time");
    if (options.narrow())
      return absl::InvalidArgumentError("a NIC, a rail or a label needs a mode: observe, protect or optimize");
    return ShowMode(session);
  }
  absl::StatusOr<v1::SetModeRequest> request = ParseWords(options.words);
  if (!request.ok()) return request.status();
  if (options.narrow()) {
    if (absl::Status status = CheckKnowsScopes(session); !status.ok()) return status;
  }
  request->set_for_s(*for_s);
  request->set_nic(options.nic);
  request->set_label(options.label);
  if (options.rail) request->set_rail(*options.rail);
  absl::StatusOr<v1::ActionReply> reply = session.Agent().SetMode(*request);
  if (!reply.ok()) return reply.status();
  session.ShowAction(*reply);
  return kOk;
}

// Of those that have something in the kernel.
std::string InstancesText() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(CW_PIN_ROOT, error))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names.empty() ? "; no instance has anything there" : ", one of " + absl::StrJoin(names, ", ");
}

// What an agent before was asked to end (--for) is over: the next one must not switch on again.
void ForgetModeDeadline(const Session& session) {
  const std::filesystem::path run_dir = std::filesystem::path(session.SocketPath()).parent_path();
  deadlines::Deadlines kept(run_dir / deadlines::Deadlines::kFile, BootId());
  if (!kept.Load().ok()) return;
  kept.SetMode(std::nullopt);
  if (absl::Status status = kept.Save(); !status.ok()) session.ShowError(status);
}

absl::StatusOr<OffLook> LookAtFlows(Session& session) {
  absl::StatusOr<v1::QpsReply> flows = session.Agent().Qps({});
  if (!flows.ok()) return flows.status();
  absl::StatusOr<v1::CountersReply> counters = session.Agent().Counters();
  if (!counters.ok()) return counters.status();
  return OffLook{*std::move(flows), *std::move(counters)};
}

// An operator who pulled the brake wants to see that the wheels stand: what left in the second after it.
absl::StatusOr<int> ShowProof(Session& session) {
  const absl::StatusOr<OffLook> before = LookAtFlows(session);
  const absl::Time from = absl::Now();
  std::this_thread::sleep_for(kProofSpan);
  const absl::StatusOr<OffLook> after = LookAtFlows(session);
  if (!before.ok() || !after.ok()) {
    std::cout << "proof: the agent did not tell the flows; look: cwctl qps\n";
    return kOk;
  }
  const OffProof proof = ProveOff(*before, *after);
  std::cout << ProofText(proof, absl::ToDoubleSeconds(absl::Now() - from));
  return proof.Holds() ? kOk : kFailed;
}

absl::StatusOr<int> Off(Session& session, const ModeOptions& options) {
  absl::StatusOr<double> for_s = ParseFor(options.for_text);
  if (!for_s.ok()) return for_s.status();
  v1::OffRequest request;
  request.set_for_s(*for_s);
  const std::unique_ptr<api::Client> agent =
      session.NewClient(session.timeout_typed ? session.Timeout(kOffPatience) : kOffPatience);
  absl::StatusOr<v1::ActionReply> reply = agent->Off(request);
  if (absl::IsUnavailable(reply.status()) && !session.IsRemote()) {
    // A socket does not tell the instance, and another agent's flows are not to be touched.
    if (!session.socket.empty() && !session.instance_given) {
      return absl::UnavailableError(
          absl::StrFormat("no agent answers on %s; to switch off what it left in the kernel, add --instance NAME%s",
                          session.socket, InstancesText()));
    }
    absl::Status direct = SwitchOffWithoutAgent(session.instance);
    if (absl::IsNotFound(direct)) return reply.status();  // no agent, and nothing that it left
    if (!direct.ok()) return direct;
    reply = v1::ActionReply();
    reply->set_effect(absl::StrFormat(
        "no agent answered in time; switched off in the kernel through %s: every flow is on its native port%s; "
        "cwfabric-off "
        "takes "
        "the programs out, too",
        CtlPinPath(session.instance), *for_s > 0 ? "; it stays so, as only an agent could revert it" : ""));
    ForgetModeDeadline(session);
    KeepAct(session.instance, "cwctl off");
    // No undo line: an agent that starts keeps this mode, and only an agent can set another.
    session.ShowAction(*reply);
    return kOk;
  }
  if (!reply.ok()) return reply.status();
  session.ShowAction(*reply);
  return session.json ? kOk : ShowProof(session);
}

}  // namespace

void AddModeVerbs(CLI::App& app, Session& session) {
  auto mode_options = std::make_shared<ModeOptions>();
  CLI::App* mode = app.add_subcommand("mode", "Show or set what the agent may do");
  mode->add_option(
          "mode", mode_options->words,
          "observe, protect, optimize or off; and what single capabilities may do whatever the mode says, such "
          "as balance=observe: failover, loss, tails, balance, place or nic = mode, off, observe or act. Shows "
          "what is set without any")
      ->type_name("MODE|CAPABILITY=WHAT:{observe,protect,optimize,off}");
  mode->add_option("--for", mode_options->for_text, "The agent reverts it after this time, such as 30m");
  CLI::Option* nic = mode->add_option("--nic", mode_options->nic,
                                      "For this NIC alone: at most the mode that is named, and never more than the "
                                      "host's; optimize ends it");
  CLI::Option* rail = mode->add_option("--rail", mode_options->rail,
                                       "The same for the NIC of this rail: its place among the [[nic]] tables, from 0");
  CLI::Option* label = mode->add_option("--label", mode_options->label, "The same for the flows of this job");
  // An empty variable of a script must not become a mode for the whole host.
  const auto named = [](const std::string& text) { return text.empty() ? "give its name" : ""; };
  nic->check(named);
  label->check(named);
  nic->excludes(rail)->excludes(label);
  rail->excludes(label);
  mode->callback(
      [&session, mode_options] { session.action = [&session, mode_options] { return Mode(session, *mode_options); }; });

  auto off_options = std::make_shared<ModeOptions>();
  CLI::App* off = app.add_subcommand("off", "Every flow back on its native port, now; works without an agent too");
  off->add_option("--for", off_options->for_text, "The agent reverts it after this time, such as 30m");
  off->callback(
      [&session, off_options] { session.action = [&session, off_options] { return Off(session, *off_options); }; });
}

}  // namespace cw::cli
