// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "userspace/lab/cwlab_cli.h"
#include "userspace/lab/demo.h"
#include "userspace/lab/demo_fleet.h"

namespace cw::lab {
namespace {

void RunFleet(Cli& cli, const FleetDemoSpec& spec) {
  const absl::StatusOr<FleetDemo> demo = RunFleetDemo(spec);
  if (!demo.ok()) return cli.Finish(demo.status(), {}, "");
  nlohmann::json cases = nlohmann::json::array();
  for (const FleetDemoCase& c : demo->cases)
    cases.push_back({{"case", c.name}, {"finding", c.finding}, {"seconds", c.seconds}, {"others", c.others}});
  cli.Finish(
      absl::OkStatus(), {{"cases", cases}, {"events", demo->events}, {"events_lost", demo->events_lost}},
      absl::StrCat("\n", FleetDemoText(*demo), "\n", ToText(FleetDemoTable(*demo)), "\nThe fabric now\n", demo->now,
                   "\nand before the first fault\n", demo->before, "\nFigures: ", spec.out, "/fleet.json\n"));
  if (const absl::Status judged = JudgeFleetDemo(*demo); !judged.ok()) cli.Finish(judged, {}, "");
}

}  // namespace

void AddFleetDemoVerb(CLI::App& app, Cli& cli) {
  auto spec = std::make_shared<FleetDemoSpec>();
  CLI::App* verb = app.add_subcommand(
      "demo-fleet", "Two racks and a fleet service: a dead spine, swapped cables, a flapping link, a slow sender");
  verb->add_option("--out", spec->out, "Folder for fleet.json, and for the service's files")->capture_default_str();
  verb->callback([spec, &cli] { RunFleet(cli, *spec); });
}

void AddDemoVerb(CLI::App& app, Cli& cli) {
  auto spec = std::make_shared<DemoSpec>();
  CLI::App* verb = app.add_subcommand(
      "demo", "The main job, before and after: colliding queue pairs spread, a silently dead spine left");
  verb->add_option("--out", spec->out, "Folder for report.html and result.json")->capture_default_str();
  verb->add_option("--seeds", spec->seeds, "Seeds of the queue pairs' numbers; all are reported")
      ->capture_default_str();
  verb->add_option("--seconds", spec->contention_s, "What the best assignment needs per seed")
      ->capture_default_str()
      ->check(CLI::Range(4.0, 600.0));
  verb->add_option("--cuts", spec->cuts, "Cuts of a spine with the agents running")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  verb->callback([spec, &cli] {
    absl::StatusOr<Report> report = RunDemo(*spec);
    if (!report.ok()) return cli.Finish(report.status(), {}, "");
    std::string text = absl::StrCat(report->headline, "\n\n");
    for (const Table& table : report->tables) text += ToText(table) + "\n";
    absl::StrAppend(&text, "Report: ", spec->out, "/report.html\nFigures: ", spec->out, "/result.json\n");
    cli.Finish(absl::OkStatus(), ToJson(*report), text);
  });
}

}  // namespace cw::lab
