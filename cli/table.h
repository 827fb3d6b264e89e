// SPDX-License-Identifier: Apache-2.0
//
// Aligned tables for people. Cells may hold text that other users chose (process names, labels): control characters are
// replaced, so that nothing reaches the terminal as a command.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/model/printable.h"

namespace cw::cli {

enum class Tone { kPlain, kGood, kWarn, kBad, kFaint, kTitle };

// Whether escape sequences are wanted: a terminal, NO_COLOR unset or empty, TERM not "dumb".
bool ColourWanted(int fd);

using cw::Printable;
// In the tone's colour when `colour`; Printable.
std::string Paint(absl::string_view text, Tone tone, bool colour);

struct Cell {
  Cell(std::string t, Tone c = Tone::kPlain) : text(std::move(t)), tone(c) {}  // NOLINT: rows read as lists of texts
  Cell(const char* t) : text(t) {}                                             // NOLINT
  std::string text;
  Tone tone = Tone::kPlain;
};

class Table {
 public:
  // Titles that begin with '>' name columns of numbers: aligned to the right.
  explicit Table(const std::vector<std::string>& titles);
  void Add(std::vector<Cell> row);  // as many cells as titles
  bool empty() const { return rows_.empty(); }
  // How many characters each column takes on a terminal.
  std::vector<size_t> Widths() const;
  // The same with these columns only, in this order.
  Table Only(const std::vector<size_t>& columns) const;
  // Columns are separated by two blanks; no blanks at a line's end. `indent` blanks before each line.
  void Print(std::ostream& out, bool colour, int indent = 0) const;

 private:
  struct Column {
    std::string title;
    bool right;
  };
  Table() = default;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace cw::cli
