// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "userspace/commandline/command.h"

namespace cw::commandline {
namespace {

std::string Sentence(const std::string& text) {
  return text.empty() || text.back() == '.' || text.back() == '?' ? text : text + ".";
}

std::string Placeholder(const Option& option) {
  return option.choices.empty() ? "\\fI" + RoffText(option.value) + "\\fP"
                                : RoffText(absl::StrJoin(option.choices, "|"));
}

std::string OptionLine(const Option& option) {
  std::string line = absl::StrJoin(option.names, ", ", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, "\\fB", RoffText(name), "\\fP");
  });
  if (!option.value.empty()) absl::StrAppend(&line, line.empty() ? "" : " ", Placeholder(option));
  return line;
}

std::string OptionEntry(const Option& option) {
  std::string text = ".TP\n" + OptionLine(option) + "\n" + RoffText(Sentence(option.description));
  if (!option.default_value.empty() && option.default_value != "false")
    absl::StrAppend(&text, " Default: ", RoffText(option.default_value), ".");
  if (!option.environment.empty()) absl::StrAppend(&text, " Also from ", RoffText(option.environment), ".");
  return text + "\n";
}

std::string Synopsis(const std::string& path, const Command& command) {
  std::string line = "\\fB" + RoffText(path) + "\\fP";
  for (const Option& option : command.options)
    if (option.required) absl::StrAppend(&line, " ", OptionLine(option));
  for (const Option& positional : command.positionals) {
    std::string one = Placeholder(positional);
    if (positional.repeats) one += "...";
    absl::StrAppend(&line, " ", positional.required ? one : "[" + one + "]");
  }
  return line;
}

// A verb, its options, then the verbs below it.
std::string Verb(const std::string& path, const Command& command) {
  std::string text = absl::StrFormat(".SS \"%s\"\n%s\n.PP\n%s\n", RoffText(path), Synopsis(path, command),
                                     RoffText(Sentence(command.description)));
  for (const Option& positional : command.positionals) text += OptionEntry(positional);
  for (const Option& option : command.options)
    if (option.names.front() != "-h") text += OptionEntry(option);
  if (!command.footer.empty()) text += ".PP\n" + RoffText(command.footer) + "\n";
  for (const Command& below : command.commands) text += Verb(path + " " + below.name, below);
  return text;
}

}  // namespace

std::string RoffText(const std::string& text) {
  std::string safe = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
  if (!safe.empty() && (safe[0] == '.' || safe[0] == '\'')) safe.insert(0, "\\&");
  return safe;
}

std::string ManualPage(const Command& program, const ManualHeading& heading) {
  std::string text = absl::StrFormat(".TH %s %d \"\" \"cwfabric %s\" \"cwfabric\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
                                     absl::AsciiStrToUpper(program.name), heading.section, heading.version,
                                     RoffText(program.name), RoffText(heading.summary));
  if (program.commands.empty()) {
    text += Synopsis(program.name, program) + "\n";
  } else {
    absl::StrAppend(&text, "\\fB", RoffText(program.name), "\\fP [\\fIoptions\\fP] \\fIcommand\\fP ...\n");
  }
  absl::StrAppend(&text, ".SH DESCRIPTION\n", RoffText(Sentence(program.description)), "\n.SH OPTIONS\n");
  for (const Option& option : program.options) text += OptionEntry(option);
  if (!program.commands.empty()) text += ".SH COMMANDS\n";
  for (const Command& below : program.commands) text += Verb(below.name, below);
  if (!program.footer.empty()) text += ".SH EXIT STATUS\n" + RoffText(program.footer) + "\n";
  for (const auto& [title, body] : heading.parts) absl::StrAppend(&text, ".SH ", title, "\n", body, "\n");
  return text;
}

}  // namespace cw::commandline
