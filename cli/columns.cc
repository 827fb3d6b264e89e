// SPDX-License-Identifier: Apache-2.0
#include "cli/columns.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/commandline/command.h"

namespace cw::cli {
namespace {

std::vector<size_t> ThatFit(const std::vector<ColumnChoice>& columns, const std::vector<size_t>& widths, size_t room) {
  std::vector<size_t> kept(columns.size());
  std::iota(kept.begin(), kept.end(), 0);
  const auto needed = [&] {
    size_t sum = 0;
    for (const size_t c : kept) sum += widths[c] + 2;
    return sum - 2;
  };
  while (kept.size() > 1 && needed() > room) {
    kept.erase(std::min_element(kept.begin(), kept.end(),
                                [&](size_t a, size_t b) { return columns[a].importance < columns[b].importance; }));
  }
  return kept;
}

}  // namespace

absl::StatusOr<std::vector<size_t>> ChooseColumns(const std::vector<ColumnChoice>& columns,
                                                  const std::vector<size_t>& widths, const std::string& typed,
                                                  size_t room) {
  if (typed.empty() && room > 0) return ThatFit(columns, widths, room);
  std::vector<size_t> chosen(columns.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  if (typed.empty() || typed == "wide") return chosen;
  chosen.clear();
  std::vector<std::string> names;
  for (const ColumnChoice& column : columns) names.push_back(column.name);
  const std::vector<std::string> wanted = absl::StrSplit(absl::AsciiStrToLower(typed), ',', absl::SkipEmpty());
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      names.push_back("wide");
      return absl::InvalidArgumentError(commandline::UnknownWord("column", name, names));
    }
    chosen.push_back(static_cast<size_t>(found - names.begin()));
  }
  if (chosen.empty()) return absl::InvalidArgumentError("-o: name columns, or wide");
  return chosen;
}

size_t TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

size_t TerminalRows() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_row;
}

std::string FirstRows(const std::string& text, size_t rows) {
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (rows == 0 || lines <= rows) return text;
  size_t end = 0;
  for (size_t line = 0; line + 1 < rows; ++line) end = text.find('\n', end) + 1;
  return absl::StrFormat("%s… %d more lines: a taller terminal shows them, or a pipe\n", text.substr(0, end),
                         lines - (rows - 1));
}

absl::StatusOr<Table> Chosen(const Table& table, const std::vector<ColumnChoice>& columns, const std::string& typed,
                             size_t indent) {
  const size_t terminal = typed.empty() ? TerminalWidth() : 0;
  const absl::StatusOr<std::vector<size_t>> chosen =
      ChooseColumns(columns, table.Widths(), typed, terminal > indent ? terminal - indent : 0);
  if (!chosen.ok()) return chosen.status();
  return table.Only(*chosen);
}

std::string ColumnsHelp(const std::vector<ColumnChoice>& columns) {
  const std::string names = absl::StrJoin(
      columns, ", ", [](std::string* out, const ColumnChoice& column) { absl::StrAppend(out, column.name); });
  return absl::StrCat("wide for all columns, or those wanted: ", names,
                      ". Without it a terminal gets those that fit, and a pipe all");
}

namespace {

// `mark` joins pieces on one line, and its part before the blank stays at the end of a line that is broken there.
std::string Broken(const std::string& text, absl::string_view mark, size_t room, size_t indent) {
  if (room == 0) return text;
  const absl::string_view kept = mark.substr(0, mark.size() - 1);
  std::string out;
  size_t column = 0;
  bool first = true;
  for (const absl::string_view piece : absl::StrSplit(text, mark)) {
    if (!std::exchange(first, false)) {
      const bool fits = column + mark.size() + piece.size() < room;
      absl::StrAppend(&out, fits ? mark : absl::StrCat(kept, "\n", std::string(indent, ' ')));
      column = fits ? column + mark.size() : indent;
    }
    absl::StrAppend(&out, piece);
    column += piece.size();
  }
  return out;
}

}  // namespace

std::string BrokenAtCommas(const std::string& text, size_t room, size_t indent) {
  return Broken(text, ", ", room, indent);
}

std::string BrokenAtBlanks(const std::string& text, size_t room, size_t indent) {
  return Broken(text, " ", room, indent);
}

}  // namespace cw::cli
