// SPDX-License-Identifier: Apache-2.0
//
// A program's command line as data, read from its parser, and what is made of it: completions for three shells and the
// manual page. The parser is the one source of all of them. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cw::commandline {

struct Option {
  std::vector<std::string> names;    // "-n", "--last"; empty for a positional argument
  std::string value;                 // what stands for its value, such as "TEXT"; "" for a flag
  std::vector<std::string> choices;  // the only values it takes; empty: any
  std::string description;
  std::string default_value;  // "" for none
  std::string environment;    // the variable that sets it, "" for none
  bool required = false;
  bool repeats = false;
};

struct Command {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<Option> options;      // with names
  std::vector<Option> positionals;  // without
  std::vector<Command> commands;
};

// What people may type; hidden verbs and options (an empty group) are left out.
Command Describe(const CLI::App& app);

// The one of `known` that was likely meant, by the fewest letters that differ; "" where none is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& known);
// "there is no verb "pahts"; did you mean paths? Known: …".
std::string UnknownWord(const std::string& what, const std::string& word, const std::vector<std::string>& known);
// What is wrong with the verbs among what was typed (without the program's name): a word that is none, with the one
// that was likely meant, or a group without one of its verbs. "": the verbs are right.
std::string VerbAdvice(const Command& program, const std::vector<std::string>& words);

// Scripts that a shell reads. Options of a verb stand before or behind it; those of the program with every verb.
std::string BashCompletion(const Command& program);
std::string ZshCompletion(const Command& program);
std::string FishCompletion(const Command& program);

struct ManualHeading {
  int section = 1;
  std::string version;
  std::string summary;                                     // one line, as after the dash of NAME
  std::vector<std::pair<std::string, std::string>> parts;  // further sections: heading, and text in roff
};

// man(7) source. Text is escaped, so that nothing of it is taken for a request.
std::string ManualPage(const Command& program, const ManualHeading& heading);
std::string RoffText(const std::string& text);

}  // namespace cw::commandline
