// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/markdown.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

size_t PlaceOf(const std::string& name, std::vector<std::string>& names) {
  const auto place = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  if (place == names.size()) names.push_back(name);
  return place;
}

// Three digits are enough for a reader, and whole numbers stay whole.
std::string Number(double value) {
  const int decimals = std::abs(value) >= 100 || value == std::round(value) ? 0 : std::abs(value) >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string Cell(const Row& row) {
  if (row.n == 0) return "never";
  if (row.p50 == row.max && row.p99 == row.max) return absl::StrFormat("%.6g", row.max);  // 99.99 % is not 100 %
  return absl::StrCat(Number(row.p50), " / ", Number(row.p99), " / ", Number(row.max));
}

}  // namespace

std::string Markdown(const Report& report) {
  std::vector<std::string> cases, lines;
  std::vector<std::vector<std::string>> cells;
  for (const Row& row : report.rows()) {
    const size_t column = PlaceOf(row.bench_case, cases);
    const size_t line = PlaceOf(absl::StrCat(row.system, ": ", row.metric, ", ", row.unit), lines);
    cells.resize(lines.size());
    cells[line].resize(std::max(cells[line].size(), column + 1));
    cells[line][column] = Cell(row);
  }
  std::string out = absl::StrCat("| ", report.name());
  for (const std::string& name : cases) absl::StrAppend(&out, " | ", name);
  absl::StrAppend(&out, " |\n|---");
  for (size_t i = 0; i < cases.size(); ++i) absl::StrAppend(&out, "|---");
  absl::StrAppend(&out, "|\n");
  for (size_t line = 0; line < lines.size(); ++line) {
    absl::StrAppend(&out, "| ", lines[line]);
    cells[line].resize(cases.size());
    for (const std::string& cell : cells[line]) absl::StrAppend(&out, " | ", cell.empty() ? "–" : cell);
    absl::StrAppend(&out, " |\n");
  }
  return out;
}

}  // namespace cw::bench
