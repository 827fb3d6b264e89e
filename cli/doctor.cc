// SPDX-License-Identifier: Apache-2.0
//
// cwctl doctor: the agent's view of its host, or this process' own where no agent answers.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/columns.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/checks.h"
#include "userspace/host/doctor.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct Look {
  const char* word;
  Tone tone;
};

Look LookOf(v1::Check::Result result) {
  switch (result) {
    case v1::Check::RESULT_OK:
      return {"ok", Tone::kGood};
    case v1::Check::RESULT_WARN:
      return {"warn", Tone::kWarn};
    case v1::Check::RESULT_FAIL:
      return {"fail", Tone::kBad};
    default:
      return {"unknown", Tone::kFaint};
  }
}

void PrintLines(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) std::cout << Printable(line) << '\n';
}

void ShowChecks(const v1::DoctorReply& reply, bool colour) {
  const size_t room = TerminalWidth();
  size_t width = 0;
  for (const v1::Check& check : reply.checks()) width = std::max(width, check.name().size());
  int worst[4] = {};
  for (const v1::Check& check : reply.checks()) {
    const Look look = LookOf(check.result());
    ++worst[std::clamp<int>(check.result(), 0, 3)];
    const std::string head = absl::StrFormat("%-7s  %-*s  ", look.word, static_cast<int>(width), check.name());
    const std::string seen = BrokenAtBlanks(head + check.seen(), room, width + 11).substr(head.size());
    std::cout << Paint(absl::StrFormat("%-7s", look.word), look.tone, colour) << head.substr(7);
    PrintLines(seen);
    if (check.todo().empty() || check.result() == v1::Check::RESULT_OK) continue;
    PrintLines(BrokenAtBlanks(std::string(width + 11, ' ') + "→ " + check.todo(), room, width + 13));
  }
  std::cout << absl::StrFormat("\n%d ok, %d to look at, %d to repair, %d unknown\n", worst[v1::Check::RESULT_OK],
                               worst[v1::Check::RESULT_WARN], worst[v1::Check::RESULT_FAIL],
                               worst[v1::Check::RESULT_UNKNOWN]);
}

v1::DoctorReply LocalChecks(const Session& session, const absl::Status& agent) {
  host::KernelProbe kernel;
  host::DoctorInput input;
  input.agent_note = absl::StrFormat("%s %s", absl::IsUnavailable(agent) ? "none answers on" : "we may not open",
                                     session.SocketPath());
  return api::ToProto(host::RunDoctor(host::Roots(), kernel, input));
}

absl::StatusOr<int> Doctor(Session& session) {
  absl::StatusOr<v1::DoctorReply> reply = session.Agent().Doctor();
  if (!session.IsRemote() && (absl::IsUnavailable(reply.status()) || absl::IsPermissionDenied(reply.status()))) {
    reply = LocalChecks(session, reply.status());
  }
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] { ShowChecks(*reply, session.Colour()); });
  const bool failed = std::any_of(reply->checks().begin(), reply->checks().end(),
                                  [](const v1::Check& check) { return check.result() == v1::Check::RESULT_FAIL; });
  return failed ? kFailed : kOk;
}

}  // namespace

void AddDoctorVerb(CLI::App& app, Session& session) {
  CLI::App* doctor = app.add_subcommand("doctor", "Is this host fit? Works without an agent too");
  doctor->callback([&session] { session.action = [&session] { return Doctor(session); }; });
}

}  // namespace cw::cli
