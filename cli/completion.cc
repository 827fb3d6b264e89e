// SPDX-License-Identifier: Apache-2.0
//
// cwctl completion, cwctl manual: made from the verbs themselves, so registered after all others.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/session.h"
#include "userspace/commandline/command.h"

namespace cw::cli {
namespace {

std::string Script(const std::string& shell, const commandline::Command& program) {
  if (shell == "bash") return commandline::BashCompletion(program);
  if (shell == "zsh") return commandline::ZshCompletion(program);
  return commandline::FishCompletion(program);
}

std::string Page(const commandline::Command& program) {
  return commandline::ManualPage(
      program, {.section = 1,
                .version = CW_VERSION,
                .summary = "show and steer what the agent of this host measures",
                .parts = {{"FILES", ".TP\n\\fI/run/cwfabric/INSTANCE/agent.sock\\fP\nThe agent's socket."},
                          {"SEE ALSO", ".BR cwagentd (8),\n.BR cwagentd.toml (5)"}}});
}

}  // namespace

void AddCompletionVerb(CLI::App& app, Session& session) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "Print what a shell needs to complete cwctl's command line");
  completion->footer("For this shell alone: eval \"$(cwctl completion bash)\". The packages install all three.");
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, &session, shell] {
    session.action = [&app, shell]() -> absl::StatusOr<int> {
      std::cout << Script(*shell, commandline::Describe(app));
      return kOk;
    };
  });
  // For the packages: it is read as cwctl(1).
  app.add_subcommand("manual", "Print cwctl(1) in roff")->group("")->callback([&app, &session] {
    session.action = [&app]() -> absl::StatusOr<int> {
      std::cout << Page(commandline::Describe(app));
      return kOk;
    };
  });
}

}  // namespace cw::cli
