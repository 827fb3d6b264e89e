// SPDX-License-Identifier: Apache-2.0
//
// cwctl: what one host's agent sees and does. docs/cwctl.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>

#include "absl/status/status.h"
#include "cli/session.h"

namespace cw::cli {
namespace {

void AddGlobals(CLI::App& app, Session& session) {
  app.add_flag("--json", session.json, "Results and errors as JSON");
  app.add_option("--instance", session.instance, "Which agent, when several run on this machine")
      ->capture_default_str();
  app.add_option("--socket", session.socket, "The agent's socket; default /run/cwfabric/INSTANCE/agent.sock")
      ->envname("CWFABRIC_SOCKET");
}

// Options of every verb may stand before or behind it.
void LetOptionsFallThrough(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands({})) {
    verb->fallthrough();
    LetOptionsFallThrough(*verb);
  }
}

bool AsksForJson(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* argument) { return std::string(argument) == "--json"; });
}

int Run(int argc, char** argv) {
  Session session;
  CLI::App app("cwctl shows and steers what the agent of this host measures.", "cwctl");
  app.set_version_flag("--version", "cwctl " CW_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 ok, 1 failed, 2 usage, 3 agent not running, 4 not supported here.");
  AddGlobals(app, session);
  AddStatusVerbs(app, session);
  AddDoctorVerb(app, session);
  AddPathVerbs(app, session);
  AddQpVerbs(app, session);
  AddClockVerbs(app, session);
  AddEventVerbs(app, session);
  AddSteerVerbs(app, session);
  AddDrainVerbs(app, session);
  AddModeVerbs(app, session);
  AddWhyVerb(app, session);
  AddJobVerbs(app, session);
  AddReplayVerb(app, session);
  AddReportVerb(app, session);
  AddCompletionVerb(app, session);
  LetOptionsFallThrough(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    session.json = AsksForJson(argc, argv);
    session.ShowError(absl::InvalidArgumentError(std::string(error.what()) + "; see cwctl --help"));
    return kUsage;
  }
  session.instance_given = app.count("--instance") > 0;
  const absl::StatusOr<int> result = session.action();
  if (result.ok()) return *result;
  session.ShowError(result.status());
  return ExitCodeOf(result.status());
}

}  // namespace
}  // namespace cw::cli

int main(int argc, char** argv) {
  // A closed pipe (cwctl events --follow | head) ends the program by its own check of the stream.
  std::signal(SIGPIPE, SIG_IGN);
  return cw::cli::Run(argc, argv);
}
