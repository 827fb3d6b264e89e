// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/commandline/command.h"

namespace cw::commandline {
namespace {

// Restricted Damerau-Levenshtein: letters put in, left out, changed, or two neighbours swapped (L. Boytsov, "Indexing
// methods for approximate dictionary searching", 2011, section 2.2).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// Null: none of those that may stand here.
const Option* FindOption(const std::vector<const Command*>& way, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const Command* command : way) {
    for (const Option& option : command->options) {
      if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
    }
  }
  return nullptr;
}

std::vector<std::string> NamesOf(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.commands) names.push_back(below.name);
  return names;
}

}  // namespace

std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;  // further off it is another word
  for (const std::string& name : known) {
    if (const size_t distance = EditDistance(word, name); distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string UnknownWord(const std::string& what, const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return absl::StrCat("there is no ", what, " \"", word, "\"",
                      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                      nearest.empty() ? "; known: " : " Known: ", absl::StrJoin(known, ", "));
}

std::string VerbAdvice(const Command& program, const std::vector<std::string>& words) {
  std::vector<const Command*> way = {&program};
  std::string typed = program.name;
  for (size_t i = 0; i < words.size(); ++i) {
    const Command& here = *way.back();
    if (here.commands.empty()) return "";
    if (!words[i].empty() && words[i][0] == '-') {
      const Option* option = FindOption(way, words[i]);
      if (option == nullptr) return "";  // the option is what is wrong
      if (!option->value.empty() && words[i].find('=') == std::string::npos) ++i;
      continue;
    }
    const auto below = std::find_if(here.commands.begin(), here.commands.end(),
                                    [&](const Command& command) { return command.name == words[i]; });
    if (below == here.commands.end())
      return UnknownWord(way.size() == 1 ? "verb" : typed + " verb", words[i], NamesOf(here));
    way.push_back(&*below);
    absl::StrAppend(&typed, " ", words[i]);
  }
  if (way.back()->commands.empty()) return "";
  return absl::StrCat(typed, " needs a verb: ", absl::StrJoin(NamesOf(*way.back()), ", "));
}

}  // namespace cw::commandline
