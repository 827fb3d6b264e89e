// SPDX-License-Identifier: Apache-2.0
//
// A program's command line as its own --help tells it, and whether a command that a document shows fits it. Pure; any
// thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace cw::docs {

// One verb's, or the program's.
struct Help {
  std::map<std::string, bool> options;  // "--last" → whether a value follows it
  std::set<std::string> commands;       // verbs below
  bool positionals = false;
  std::set<std::string> choices;  // of the first positional; empty: any
};
Help ParseHelp(const std::string& text);

// Of the verbs in a row; none: of the program.
using HelpOf = std::function<const Help&(const std::vector<std::string>& verbs)>;

// words: without the program. "" when the program takes them, otherwise what it does not know. Nothing is asked of
// what a verb needs, because documents name options alone, too.
std::string Unknown(const std::vector<std::string>& words, const HelpOf& help);

}  // namespace cw::docs
