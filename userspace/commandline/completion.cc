// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "userspace/commandline/command.h"

namespace cw::commandline {
namespace {

using Visit = std::function<void(const std::string& path, const Command& command)>;

// Every command with the words that lead to it, "steer set"; "" for the program.
void Walk(const Command& command, const std::string& path, const Visit& visit) {
  visit(path, command);
  for (const Command& below : command.commands) Walk(below, path.empty() ? below.name : path + " " + below.name, visit);
}

std::vector<std::string> Names(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.commands) names.push_back(below.name);
  return names;
}

// Options in `command` and, since those may stand behind every verb, of the program.
std::vector<const Option*> OptionsOf(const Command& command, const Command& program) {
  std::vector<const Option*> options;
  for (const Option& option : command.options) options.push_back(&option);
  if (&command == &program) return options;
  for (const Option& option : program.options) {
    const bool own = std::any_of(command.options.begin(), command.options.end(),
                                 [&](const Option& mine) { return mine.names == option.names; });
    if (!own) options.push_back(&option);
  }
  return options;
}

// In single quotes.
std::string ShellQuote(const std::string& text) { return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'"; }

std::string FishQuote(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'";
}

std::vector<std::string> ValuesOf(const Command& command) {
  std::vector<std::string> values;
  for (const Option& positional : command.positionals)
    values.insert(values.end(), positional.choices.begin(), positional.choices.end());
  return values;
}

std::string FunctionName(const std::string& program) { return absl::StrReplaceAll(program, {{"-", "_"}}); }

// Every name of an option that takes a value, as alternatives of a shell's case.
std::string ValueOptions(const Command& program) {
  std::vector<std::string> names;
  Walk(program, "", [&](const std::string&, const Command& command) {
    for (const Option& option : command.options) {
      if (option.value.empty()) continue;
      for (const std::string& name : option.names)
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  });
  return names.empty() ? "--" : absl::StrJoin(names, "|");
}

std::vector<std::string> OptionNames(const Command& command, const Command& program) {
  std::vector<std::string> names;
  for (const Option* option : OptionsOf(command, program))
    names.insert(names.end(), option->names.begin(), option->names.end());
  return names;
}

// Bash: cases "PATH:OPTION" of options with few values.
std::string BashChoices(const Command& program) {
  std::string cases;
  Walk(program, "", [&](const std::string& path, const Command& command) {
    for (const Option* option : OptionsOf(command, program)) {
      if (option->value.empty()) continue;
      for (const std::string& name : option->names) {
        if (option->choices.empty()) continue;
        absl::StrAppendFormat(&cases, "    %s) words=%s ;;\n", ShellQuote(path + ":" + name),
                              ShellQuote(absl::StrJoin(option->choices, " ")));
      }
    }
  });
  return cases;
}

std::string BashWords(const Command& program) {
  std::string cases;
  Walk(program, "", [&](const std::string& path, const Command& command) {
    std::vector<std::string> words = Names(command);
    const std::vector<std::string> values = ValuesOf(command);
    words.insert(words.end(), values.begin(), values.end());
    absl::StrAppendFormat(&cases, "    %s) words=%s; options=%s ;;\n", ShellQuote(path),
                          ShellQuote(absl::StrJoin(words, " ")),
                          ShellQuote(absl::StrJoin(OptionNames(command, program), " ")));
  });
  return cases;
}

// All paths of commands, for the scripts' way down the typed words.
std::string Paths(const Command& program) {
  std::vector<std::string> paths;
  Walk(program, "", [&](const std::string& path, const Command&) {
    if (!path.empty()) paths.push_back(ShellQuote(path));
  });
  return paths.empty() ? "''" : absl::StrJoin(paths, "|");
}

std::string ZshOption(const Option& option, const std::string& name) {
  std::string spec = name;
  spec += "[" + absl::StrReplaceAll(option.description, {{"[", "("}, {"]", ")"}, {":", "\\:"}}) + "]";
  if (option.value.empty()) return spec;
  spec += ":" + option.value + ":";
  if (!option.choices.empty()) spec += "(" + absl::StrJoin(option.choices, " ") + ")";
  return spec;
}

std::string ZshCase(const std::string& path, const Command& command, const Command& program) {
  std::string text = absl::StrFormat("    %s)\n      verbs=(", ShellQuote(path));
  for (const Command& below : command.commands)
    text += " " + ShellQuote(below.name + ":" + absl::StrReplaceAll(below.description, {{":", "\\:"}}));
  for (const std::string& value : ValuesOf(command)) text += " " + ShellQuote(value);
  text += " )\n      options=(";
  for (const Option* option : OptionsOf(command, program))
    for (const std::string& name : option->names) text += " " + ShellQuote(ZshOption(*option, name));
  return text + " )\n      ;;\n";
}

std::string FishOption(const std::string& program, const std::string& condition, const Option& option) {
  std::string line = absl::StrFormat("complete -c %s -n %s", program, condition);
  for (const std::string& name : option.names)
    line += name.compare(0, 2, "--") == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty()) line += " -x";
  if (!option.choices.empty()) line += " -a " + FishQuote(absl::StrJoin(option.choices, " "));
  return line + " -d " + FishQuote(option.description) + "\n";
}

}  // namespace

std::string BashCompletion(const Command& program) {
  const std::string function = FunctionName(program.name);
  return absl::StrFormat(
      R"(# bash completion of %1$s, made by '%1$s completion bash'
_%2$s() {
  local current=${COMP_WORDS[COMP_CWORD]} path= word next words= options= i skip=
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [ -n "$skip" ]; then skip=; continue; fi
    case "$word" in
      %3$s) skip=1; continue ;;
      -*) continue ;;
    esac
    next="${path:+$path }$word"
    case "$next" in
      %4$s) path=$next ;;
    esac
  done
  if [ -n "$skip" ]; then
    case "$path:${COMP_WORDS[COMP_CWORD - 1]}" in
%5$s      *) compopt -o default; COMPREPLY=(); return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  case "$path" in
%6$s  esac
  case "$current" in
    -*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current") ;;
    *)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      [ -n "$words" ] || compopt -o default
      ;;
  esac
}
complete -F _%2$s %1$s
)",
      program.name, function, ValueOptions(program), Paths(program), BashChoices(program), BashWords(program));
}

std::string ZshCompletion(const Command& program) {
  std::string cases;
  Walk(program, "", [&](const std::string& path, const Command& command) { cases += ZshCase(path, command, program); });
  return absl::StrFormat(
      R"(#compdef %1$s
# zsh completion of %1$s, made by '%1$s completion zsh'
_%2$s() {
  local typed= word next skip= i context state state_descr line
  local -a verbs options
  typeset -A opt_args
  for ((i = 2; i < CURRENT; ++i)); do
    word=$words[i]
    if [[ -n $skip ]]; then skip=; continue; fi
    case $word in
      %3$s) skip=1; continue ;;
      -*) continue ;;
    esac
    next="${typed:+$typed }$word"
    case $next in
      %4$s) typed=$next ;;
    esac
  done
  case $typed in
%5$s  esac
  _arguments -S $options '*:argument:->argument'
  if [[ $state == argument ]]; then
    if (( $#verbs )); then _describe 'command' verbs; else _files; fi
  fi
}
if [[ $funcstack[1] == _%2$s ]]; then _%2$s "$@"; else compdef _%2$s %1$s; fi
)",
      program.name, FunctionName(program.name), ValueOptions(program), Paths(program), cases);
}

std::string FishCompletion(const Command& program) {
  const std::string function = FunctionName(program.name);
  std::string text = absl::StrFormat(
      R"(# fish completion of %1$s, made by '%1$s completion fish'
function __fish_%2$s_at
  set -l typed
  set -l skip
  for word in (commandline -opc)[2..-1]
    if test -n "$skip"
      set skip
      continue
    end
    switch $word
      case %3$s
        set skip 1
      case '-*'
      case '*'
        set -l next (string join ' ' $typed $word)
        if contains -- $next %4$s
          set typed $next
        end
    end
  end
  test "$typed" = "$argv[1]"
end
complete -c %1$s -f
)",
      program.name, function, absl::StrReplaceAll(ValueOptions(program), {{"|", " "}}),
      absl::StrReplaceAll(Paths(program), {{"'|'", "' '"}}));
  Walk(program, "", [&](const std::string& path, const Command& command) {
    const std::string condition = FishQuote(absl::StrFormat("__fish_%s_at \"%s\"", function, path));
    for (const Command& below : command.commands)
      absl::StrAppendFormat(&text, "complete -c %s -n %s -a %s -d %s\n", program.name, condition, below.name,
                            FishQuote(below.description));
    for (const std::string& value : ValuesOf(command))
      absl::StrAppendFormat(&text, "complete -c %s -n %s -a %s\n", program.name, condition, FishQuote(value));
    if (command.commands.empty() && !command.positionals.empty() && ValuesOf(command).empty())
      absl::StrAppendFormat(&text, "complete -c %s -n %s -F\n", program.name, condition);
    for (const Option* option : OptionsOf(command, program)) text += FishOption(program.name, condition, *option);
  });
  return text;
}

}  // namespace cw::commandline
