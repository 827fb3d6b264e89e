// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/docs_help.h"

#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/unit/docs_text.h"

namespace cw::docs {
namespace {

constexpr size_t kHeadAt = 8;  // descriptions stand further right

// "-n,--last UINT=50": names, and whether what follows them is the name of a value.
void AddOption(const std::string& head, Help& help) {
  const size_t end = head.find_first_of(" {");
  const std::string rest(absl::StripAsciiWhitespace(end == std::string::npos ? "" : head.substr(end)));
  bool value = !rest.empty() && std::isupper(static_cast<unsigned char>(rest[0])) != 0;
  for (const char* word : {"Excludes:", "Needs:", "REQUIRED"}) value = value && !absl::StartsWith(rest, word);
  for (const absl::string_view name : absl::StrSplit(head.substr(0, end), ',')) help.options[std::string(name)] = value;
}

void AddPositional(const std::string& head, Help& help) {
  const size_t open = head.find('{'), close = head.find('}');
  if (!help.positionals && open != std::string::npos && close != std::string::npos)
    help.choices = absl::StrSplit(head.substr(open + 1, close - open - 1), ',');
  help.positionals = true;
}

struct Walk {
  const HelpOf& help;
  std::vector<std::string> verbs;
  std::string fault;

  std::string Where() const {
    return verbs.empty() ? "the program" : absl::StrCat("'", absl::StrJoin(verbs, " "), "'");
  }

  // Of the verb, or of those above it, whose options may stand behind it. −1: none, otherwise whether a value follows.
  int Takes(const std::string& name) const {
    std::vector<std::string> at = verbs;
    while (true) {
      const Help& here = help(at);
      const auto found = here.options.find(name);
      if (found != here.options.end()) return found->second ? 1 : 0;
      if (at.empty()) return -1;
      at.pop_back();
    }
  }

  // How many words were used up.
  size_t Option(const std::string& word) {
    const size_t equals = word.find('=');
    const int takes = Takes(word.substr(0, equals));
    if (takes < 0) fault = absl::StrCat(Where(), " has no option ", word.substr(0, equals));
    return takes == 1 && equals == std::string::npos ? 2 : 1;
  }

  void Word(const std::string& word) {
    const Help& here = help(verbs);
    if (here.commands.count(word) != 0) {
      verbs.push_back(word);
    } else if (!here.commands.empty() && !here.positionals) {
      fault = absl::StrCat(Where(), " has no verb ", word);
    } else if (!here.positionals) {
      fault = absl::StrCat(Where(), " takes no ", word);
    } else if (!here.choices.empty() && here.choices.count(word) == 0 && !absl::StrContains(word, '=')) {
      fault = absl::StrCat(Where(), " knows ", absl::StrJoin(here.choices, ", "), ", not ", word);
    }
  }
};

}  // namespace

Help ParseHelp(const std::string& text) {
  Help help;
  std::string section;
  for (const absl::string_view view : absl::StrSplit(text, '\n')) {
    const std::string line(view);
    const std::string trimmed(absl::StripAsciiWhitespace(line));
    const size_t indent = line.size() - absl::StripLeadingAsciiWhitespace(line).size();
    if (absl::EndsWith(trimmed, ":") && (indent == 0 || trimmed == "Options:")) {
      section = trimmed;
      continue;
    }
    if (trimmed.empty() || indent == 0 || indent > kHeadAt) continue;
    const std::string head = trimmed.substr(0, trimmed.find("  "));
    if (section == "Options:" && trimmed[0] == '-') AddOption(head, help);
    if (section == "Subcommands:") help.commands.insert(head);
    if (section == "Positionals:") AddPositional(head, help);
  }
  return help;
}

std::string Unknown(const std::vector<std::string>& words, const HelpOf& help) {
  Walk walk{.help = help, .verbs = {}, .fault = ""};
  for (size_t i = 0; i < words.size() && walk.fault.empty();) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-') {
      i += walk.Option(word);
      continue;
    }
    // A verb of the reader's choice: what may follow is not known.
    if (IsPlaceholder(word) && !help(walk.verbs).commands.empty()) break;
    if (!IsPlaceholder(word)) walk.Word(word);
    ++i;
  }
  return walk.fault;
}

}  // namespace cw::docs
