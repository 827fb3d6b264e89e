// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>

#include "absl/strings/string_view.h"

namespace cw::cli {
namespace {

const char* Escape(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kGood:
      return "\033[32m";
    case Tone::kWarn:
      return "\033[33m";
    case Tone::kBad:
      return "\033[31m";
    case Tone::kFaint:
      return "\033[2m";
    case Tone::kTitle:
      return "\033[1m";
  }
  return "";
}

// Columns on a terminal: every code point here is one wide ("µ", "→", "–").
size_t Width(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool ColourWanted(int fd) {
  if (isatty(fd) == 0) return false;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return term != nullptr && absl::string_view(term) != "dumb";
}

std::string Paint(absl::string_view text, Tone tone, bool colour) {
  std::string printable = Printable(text);
  if (!colour || tone == Tone::kPlain) return printable;
  return Escape(tone) + printable + "\033[0m";
}

Table::Table(const std::vector<std::string>& titles) {
  for (const std::string& title : titles) {
    const bool right = !title.empty() && title[0] == '>';
    columns_.push_back({right ? title.substr(1) : title, right});
  }
}

void Table::Add(std::vector<Cell> row) {
  assert(row.size() == columns_.size());
  rows_.push_back(std::move(row));
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = Width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, Width(Printable(row[c].text)));
    widths.push_back(width);
  }
  return widths;
}

Table Table::Only(const std::vector<size_t>& columns) const {
  Table table;
  for (const size_t c : columns) table.columns_.push_back(columns_[c]);
  for (const auto& row : rows_) {
    std::vector<Cell> kept;
    for (const size_t c : columns) kept.push_back(row[c]);
    table.rows_.push_back(std::move(kept));
  }
  return table;
}

void Table::Print(std::ostream& out, bool colour, int indent) const {
  const std::vector<size_t> widths = Widths();
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title, Tone::kTitle);
  auto print = [&](const std::vector<Cell>& row) {
    size_t last = row.size();
    while (last > 0 && row[last - 1].text.empty()) --last;
    out << std::string(static_cast<size_t>(indent), ' ');
    for (size_t c = 0; c < last; ++c) {
      const std::string padding(widths[c] - Width(Printable(row[c].text)), ' ');
      if (columns_[c].right) out << padding;
      out << Paint(row[c].text, row[c].tone, colour);
      if (c + 1 < last) out << (columns_[c].right ? "" : padding) << "  ";
    }
    out << '\n';
  };
  print(titles);
  for (const auto& row : rows_) print(row);
}

}  // namespace cw::cli
