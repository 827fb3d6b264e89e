// SPDX-License-Identifier: Apache-2.0
//
// Tables that README and docs/ show have the columns that cwctl prints: each documented reading verb is run, and the
// headings of its output are compared. "…" stands for columns that a document leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli_cwctl_rig.h"

namespace cw::cli {
namespace {

using Words = std::vector<std::string>;

struct Shown {
  std::string place;  // file and line
  Words command;
  std::vector<Words> headings;
};

Words WordsOf(const std::string& line) { return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipWhitespace()); }

// Column names are capitals; three of them at least.
bool IsHeading(const Words& words) {
  size_t names = 0;
  for (const std::string& word : words) {
    if (word == "…" || word == "±") continue;
    const bool name = std::all_of(word.begin(), word.end(),
                                  [](unsigned char c) {
                                    return std::isupper(c) || std::isdigit(c) || c == '-' || c == '/' || c == '%';
                                  }) &&
                      std::isupper(static_cast<unsigned char>(word[0]));
    if (!name) return false;
    ++names;
  }
  return names >= 3;
}

bool Fits(absl::Span<const std::string> shown, absl::Span<const std::string> printed) {
  if (shown.empty()) return printed.empty();
  if (shown[0] != "…") return !printed.empty() && shown[0] == printed[0] && Fits(shown.subspan(1), printed.subspan(1));
  for (size_t skipped = 0; skipped <= printed.size(); ++skipped) {
    if (Fits(shown.subspan(1), printed.subspan(skipped))) return true;
  }
  return false;
}

std::vector<Shown> ShownIn(const std::filesystem::path& file) {
  std::vector<Shown> all;
  std::ifstream text(file);
  int number = 0;
  bool within = false;
  for (std::string line; std::getline(text, line);) {
    ++number;
    const Words words = WordsOf(line);
    if (absl::StartsWith(line, "    $ cwctl ")) {
      all.push_back({absl::StrCat(file.filename().string(), ":", number), {words.begin() + 2, words.end()}, {}});
      within = true;
    } else if (!absl::StartsWith(line, "    ")) {
      within = false;
    } else if (within && IsHeading(words)) {
      all.back().headings.push_back(words);
    }
  }
  return all;
}

TEST(DocumentedTables, AHeadingIsToldFromOtherLines) {
  EXPECT_TRUE(IsHeading(WordsOf("FLOW  QP  …  OWD P50  ±  FLAPS/H")));
  EXPECT_FALSE(IsHeading(WordsOf("h1 10.0.1.10  from eth0")));
  EXPECT_FALSE(IsHeading(WordsOf("DSCP 26")));
  EXPECT_TRUE(Fits({"A", "…", "C"}, {"A", "B", "B", "C"}));
  EXPECT_TRUE(Fits({"A", "…"}, {"A"}));
  EXPECT_FALSE(Fits({"A", "…", "D"}, {"A", "B", "C"}));
  EXPECT_FALSE(Fits({"A", "B"}, {"A", "B", "C"}));
}

class DocumentedTablesTest : public Cwctl {
 protected:
  // The fake agent's peers have other names, and it never ends a --follow.
  static Words Runnable(const Words& shown) {
    Words command;
    for (const std::string& word : shown) {
      const bool peer = word.size() == 2 && word[0] == 'h' && std::isdigit(static_cast<unsigned char>(word[1]));
      if (!peer && word != "--follow") command.push_back(word);
    }
    return command;
  }
};

TEST_F(DocumentedTablesTest, HaveTheColumnsThatCwctlPrints) {
  std::vector<std::filesystem::path> files = {std::filesystem::path(CW_SOURCE_DIR) / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(CW_SOURCE_DIR) / "docs")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  int compared = 0;
  for (const std::filesystem::path& file : files) {
    for (const Shown& shown : ShownIn(file)) {
      if (shown.headings.empty()) continue;
      const RunResult run = Run(Runnable(shown.command));
      EXPECT_EQ(run.exit_code, 0) << shown.place << ": " << run.err;
      std::vector<Words> printed;
      for (const absl::string_view line : absl::StrSplit(run.out, '\n')) printed.push_back(WordsOf(std::string(line)));
      for (const Words& heading : shown.headings) {
        const bool there =
            std::any_of(printed.begin(), printed.end(), [&](const Words& p) { return Fits(heading, p); });
        EXPECT_TRUE(there) << shown.place << ": cwctl " << absl::StrJoin(shown.command, " ")
                           << " prints no table with the columns\n"
                           << absl::StrJoin(heading, "  ") << "\nbut\n"
                           << run.out;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 8);
}

}  // namespace
}  // namespace cw::cli
