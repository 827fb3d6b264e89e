// SPDX-License-Identifier: Apache-2.0
//
// cwctl label: names of jobs for processes whose queue pairs have none.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

struct LabelOptions {
  uint32_t pid = 0;
  std::string cgroup;
  std::string label;
  bool all = false;
};

absl::StatusOr<int> Send(Session& session, const LabelOptions& options) {
  v1::LabelRequest request;
  request.set_pid(options.pid);
  request.set_cgroup(options.cgroup);
  request.set_label(options.label);
  const absl::StatusOr<v1::ActionReply> reply = session.Agent().Label(request);
  if (!reply.ok()) return reply.status();
  session.ShowAction(*reply);
  return kOk;
}

absl::StatusOr<int> ListLabels(Session& session) {
  const absl::StatusOr<v1::LabelsReply> reply = session.Agent().Labels();
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (reply->labels().empty()) {
      std::cout << "no labels are given\n";
      return;
    }
    Table table({">PID", "CONTROL GROUP", "LABEL"});
    for (const v1::ProcessLabel& label : reply->labels()) {
      table.Add({label.pid() == 0 ? kNoValue : std::to_string(label.pid()),
                 label.cgroup().empty() ? kNoValue : label.cgroup(), label.label()});
    }
    table.Print(std::cout, session.Colour());
  });
  return kOk;
}

void AddWhose(CLI::App& verb, LabelOptions& options) {
  CLI::Option* pid = verb.add_option("--pid", options.pid, "A process of this host");
  verb.add_option("--cgroup", options.cgroup, "A control group and all below it, as in /proc/PID/cgroup")
      ->excludes(pid);
}

}  // namespace

void AddLabelVerb(CLI::App& app, Session& session) {
  CLI::App* label = app.add_subcommand("label", "Names of jobs for processes that give none: set, clear, list");
  label->require_subcommand(1);
  auto options = std::make_shared<LabelOptions>();
  CLI::App* set = label->add_subcommand("set", "Give a process or a control group a label");
  AddWhose(*set, *options);
  set->add_option("label", options->label, "Shown with its queue pairs and jobs")->required();
  set->callback([&session, options] {
    session.action = [&session, options]() -> absl::StatusOr<int> {
      if (options->label.empty()) return absl::InvalidArgumentError("a label has 1 to 64 bytes");
      return Send(session, *options);
    };
  });
  CLI::App* clear = label->add_subcommand("clear", "Take it away");
  AddWhose(*clear, *options);
  clear->add_flag("--all", options->all, "All that are given");
  clear->callback([&session, options] {
    session.action = [&session, options]() -> absl::StatusOr<int> {
      if (options->pid == 0 && options->cgroup.empty() && !options->all)
        return absl::InvalidArgumentError("whose label? Give --pid, --cgroup or --all");
      return Send(session, *options);
    };
  });
  CLI::App* list = label->add_subcommand("list", "Labels that are given");
  list->callback([&session] { session.action = [&session] { return ListLabels(session); }; });
}

}  // namespace cw::cli
