// SPDX-License-Identifier: Apache-2.0
//
// cwctl: what one host's agent sees and does. docs/cwctl.md.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>

#include "absl/status/status.h"
#include "cli/fleet.h"
#include "cli/session.h"
#include "userspace/commandline/command.h"
#include "userspace/commandline/printable_stream.h"

namespace cw::cli {
namespace {

void AddGlobals(CLI::App& app, Session& session) {
  app.add_flag("--json", session.json, "Results and errors as JSON");
  app.add_option("--instance", session.instance, "Which agent, when several run on this machine")
      ->capture_default_str();
  app.add_option("--socket", session.socket, "The agent's socket; default /run/cwfabric/INSTANCE/agent.sock")
      ->envname("CWFABRIC_SOCKET");
  app.add_option("--server", session.remote.server,
                 "An agent that listens on TCP (api.listen), in place of this host's")
      ->type_name("HOST:PORT")
      ->envname("CWFABRIC_SERVER");
  app.add_option("--timeout", session.timeout_s,
                 "How long to wait for each answer, 0.1 to 600; default 5, for off 0.8, of the fleet service 10, of "
                 "incidents 60")
      ->check(CLI::Range(0.1, 600.0))
      ->type_name("SECONDS")
      ->envname("CWFABRIC_TIMEOUT");
  app.add_option("--fleet", session.fleet, "The fleet service, for cwctl fleet")
      ->type_name("HOST:PORT")
      ->envname("CWFABRIC_FLEET");
  app.add_option("--cert", session.remote.tls.cert, "With --server or --fleet: your certificate, PEM")
      ->type_name("FILE")
      ->envname("CWFABRIC_CERT");
  app.add_option("--key", session.remote.tls.key, "With --server or --fleet: its key, PEM, readable by you only")
      ->type_name("FILE")
      ->envname("CWFABRIC_KEY");
  app.add_option("--ca", session.remote.tls.ca,
                 "With --server or --fleet: certificate of the authority that signs theirs, PEM")
      ->type_name("FILE")
      ->envname("CWFABRIC_CA");
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

bool Typed(int argc, char** argv, const std::string& option) {
  return std::any_of(argv + 1, argv + argc, [&](const std::string& argument) {
    return argument == option || argument.rfind(option + "=", 0) == 0;
  });
}

// What is typed counts for more than what the environment says: of this host's agent and a remote one, only one is
// meant.
void ChooseAgent(int argc, char** argv, Session& session) {
  const bool remote = Typed(argc, argv, "--server");
  const bool local = Typed(argc, argv, "--socket") || Typed(argc, argv, "--instance");
  if (remote && !local) session.socket.clear();
  if (local && !remote) session.remote.server.clear();
  if (Typed(argc, argv, "--instance") && !Typed(argc, argv, "--socket")) session.socket.clear();
}

// What nobody could read is no success: a full disk is told. A reader that has seen enough (| head) is not.
int Written(int exit_code) {
  std::cout.flush();
  if (std::cout) return exit_code;
  pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0) return exit_code;
  std::cerr << "cwctl: the standard output took not all of it: is the disk full?" << std::endl;
  return exit_code == kOk ? kFailed : exit_code;
}

int Run(int argc, char** argv, commandline::PrintableStream& out) {
  Session session;
  CLI::App app("cwctl shows and steers what the agent of this host measures.", "cwctl");
  app.set_version_flag("--version", "cwctl " CW_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 ok, 1 failed, 2 usage, 3 agent not running, 4 not supported here.");
  AddGlobals(app, session);
#define CW_CLI_ADD(add) add(app, session);
  CW_CLI_VERBS(CW_CLI_ADD)
  LetOptionsFallThrough(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return Written(app.exit(help));
  } catch (const CLI::ParseError& error) {
    session.json = AsksForJson(argc, argv);
    if (session.json) out.SetJson();
    const std::string advice = commandline::VerbAdvice(commandline::Describe(app), {argv + 1, argv + argc});
    session.ShowError(absl::InvalidArgumentError((advice.empty() ? error.what() : advice) + "; see cwctl --help"));
    return kUsage;
  }
  if (session.json) out.SetJson();
  session.timeout_typed = Typed(argc, argv, "--timeout");
  session.fleet_typed = Typed(argc, argv, "--fleet");
  session.instance_given = app.count("--instance") > 0;
  ChooseAgent(argc, argv, session);
  const absl::Status options = session.CheckOptions();
  const absl::StatusOr<std::function<absl::StatusOr<int>()>> of_fleet = FleetReadingOf(app, session);
  if (of_fleet.ok() && *of_fleet != nullptr) session.action = *of_fleet;
  const absl::StatusOr<int> result = !options.ok() ? options : !of_fleet.ok() ? of_fleet.status() : session.action();
  if (result.ok()) return Written(*result);
  session.ShowError(result.status());
  return ExitCodeOf(result.status());
}

}  // namespace
}  // namespace cw::cli

int main(int argc, char** argv) {
  // A closed pipe (cwctl events --follow | head) ends the program by its own check of the stream.
  std::signal(SIGPIPE, SIG_IGN);
  // Hosts, services and files choose much of what is shown.
  cw::commandline::PrintableStream out(std::cout), errors(std::cerr);
  return cw::cli::Run(argc, argv, out);
}
