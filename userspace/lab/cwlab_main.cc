// SPDX-License-Identifier: Apache-2.0
//
// cwlab: the lab's command line. Verbs live in cwlab_*.cc.
#include <iostream>

#include "userspace/commandline/command.h"
#include "userspace/lab/cwlab_cli.h"

namespace cw::lab {

void Cli::Finish(const absl::Status& status, const nlohmann::json& result, const std::string& text) {
  if (status.ok()) {
    if (json) {
      std::cout << result.dump(2) << std::endl;
    } else if (!text.empty()) {
      std::cout << text << std::flush;
    }
    return;
  }
  exit_code = absl::IsUnimplemented(status)     ? kExitNotSupported
              : absl::IsInvalidArgument(status) ? kExitUsage
                                                : kExitFailed;
  if (json) {
    const nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())},
                                  {"message", std::string(status.message())}};
    std::cout << nlohmann::json{{"error", error}}.dump(2) << std::endl;
  } else {
    std::cerr << "cwlab: " << status.message() << std::endl;
  }
}

}  // namespace cw::lab

int main(int argc, char** argv) {
  CLI::App app("cwlab: a leaf-spine RoCEv2 fabric on this machine, with faults and ground truth", "cwlab");
  cw::lab::Cli cli;
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", cli.json, "print one JSON document, errors included");
  app.add_option("--lab", cli.lab, "name of the lab")->capture_default_str();
  cw::lab::AddFabricVerbs(app, cli);
  cw::lab::AddTrafficVerb(app, cli);
  cw::lab::AddFaultVerb(app, cli);
  cw::lab::AddRunVerb(app, cli);
  cw::lab::AddDemoVerb(app, cli);
  cw::lab::AddFleetDemoVerb(app, cli);
  // For the packages: it is read as cwlab(1).
  app.add_subcommand("manual", "Print cwlab(1) in roff")->group("")->callback([&app, &cli] {
    cli.Finish(
        absl::OkStatus(), {},
        cw::commandline::ManualPage(cw::commandline::Describe(app), {.summary = "a RoCEv2 fabric on this machine"}));
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string advice = cw::commandline::VerbAdvice(cw::commandline::Describe(app), {argv + 1, argv + argc});
    cli.Finish(absl::InvalidArgumentError((advice.empty() ? error.what() : advice) + "; see cwlab --help"), {}, "");
    return cw::lab::kExitUsage;
  }
  return cli.exit_code;
}
