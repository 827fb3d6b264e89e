// SPDX-License-Identifier: Apache-2.0
#include "userspace/commandline/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace cw::commandline {
namespace {

// The parser names the value and then what checks it: "MODE:{observe,protect}".
void ReadValue(const CLI::Option& option, Option& described) {
  if (option.get_items_expected_max() == 0) return;
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  const size_t brace = type.find('{');
  described.value = type.substr(0, std::min(colon, brace));
  if (described.value.empty()) described.value = "VALUE";
  if (brace == std::string::npos) return;
  const size_t end = type.find('}', brace);
  if (end == std::string::npos) return;
  described.choices = absl::StrSplit(type.substr(brace + 1, end - brace - 1), ',');
}

Option DescribeOption(const CLI::Option& option) {
  Option described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  ReadValue(option, described);
  described.description = option.get_description();
  described.default_value = option.get_default_str();
  described.environment = option.get_envname();
  described.required = option.get_required();
  described.repeats = option.get_items_expected_max() > 1;
  // A positional argument's name is its value's only where no type is given.
  if (described.names.empty() && (described.value == "TEXT" || described.value == "VALUE"))
    described.value = absl::AsciiStrToUpper(option.get_name(true));
  return described;
}

void AddOptions(const CLI::App& app, Command& command) {
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;
    Option described = DescribeOption(*option);
    // A group of options has the parser's --help once more.
    const bool known = std::any_of(command.options.begin(), command.options.end(), [&](const Option& other) {
      return !other.names.empty() && other.names == described.names;
    });
    if (known) continue;
    (described.names.empty() ? command.positionals : command.options).push_back(std::move(described));
  }
}

}  // namespace

Command Describe(const CLI::App& app) {
  Command command{.name = app.get_name(), .description = app.get_description(), .footer = app.get_footer()};
  AddOptions(app, command);
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (below->get_name().empty()) {
      AddOptions(*below, command);  // a group of options, not a verb
    } else if (!below->get_group().empty()) {
      command.commands.push_back(Describe(*below));
    }
  }
  return command;
}

}  // namespace cw::commandline
