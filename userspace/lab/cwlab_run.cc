// SPDX-License-Identifier: Apache-2.0
//
// cwlab run: a scenario file on a fabric of its own; report.html and result.json are left.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/lab/cwlab_cli.h"
#include "userspace/lab/scenario.h"

namespace cw::lab {
namespace {

void RunRun(Cli& cli, const std::string& file, const std::string& out) {
  absl::StatusOr<ScenarioOutcome> outcome = RunScenario(file, cli.lab);
  if (!outcome.ok()) return cli.Finish(outcome.status(), {}, "");
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error)
    return cli.Finish(absl::FailedPreconditionError(absl::StrCat("cannot make ", out, ": ", error.message())), {}, "");
  absl::Status status = WriteFile(out + "/report.html", ToHtml(outcome->report));
  status.Update(outcome->result.Write(out + "/result.json"));
  std::string text = outcome->report.title + "\n\n";
  for (const Table& table : outcome->report.tables) text += ToText(table);
  absl::StrAppend(&text, "\nReport: ", out, "/report.html\n");
  cli.Finish(status, ToJson(outcome->report), text);
}

}  // namespace

void AddRunVerb(CLI::App& app, Cli& cli) {
  CLI::App* run =
      app.add_subcommand("run", "run a scenario file (userspace/lab/scenarios/*.json) on a fabric of its own");
  auto file = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>("build/run");
  run->add_option("scenario", *file, "the file")->required();
  run->add_option("--out", *out, "folder for report.html and result.json")->capture_default_str();
  run->callback([&cli, file, out] { RunRun(cli, *file, *out); });
}

}  // namespace cw::lab
