// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a wide table are shown: those that fit the terminal, those that were named, or all. Pure, but for
// TerminalWidth and what asks it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/table.h"

namespace cw::cli {

struct ColumnChoice {
  std::string name;    // as -o names it
  int importance = 0;  // the least important ones go first where room is short
};

// All columns when `typed` is "wide", or empty with room 0; those named, in that order; otherwise those that fit into
// `room` characters, `widths` being those of the columns. InvalidArgument: no such column, with those that there are.
absl::StatusOr<std::vector<size_t>> ChooseColumns(const std::vector<ColumnChoice>& columns,
                                                  const std::vector<size_t>& widths, const std::string& typed,
                                                  size_t room);

// Of the terminal on standard output; 0: it is none, or its width is not known.
size_t TerminalWidth();
size_t TerminalRows();

// As many lines of it as there is room for, the last then saying how many more there are; 0 rooms: all.
std::string FirstRows(const std::string& text, size_t rows);

// The table as ChooseColumns has it for this terminal, less `indent` blanks. One choice for each of its columns.
absl::StatusOr<Table> Chosen(const Table& table, const std::vector<ColumnChoice>& columns, const std::string& typed,
                             size_t indent = 0);

// Help of an option -o for these columns.
std::string ColumnsHelp(const std::vector<ColumnChoice>& columns);

// Breaks `text` after commas, so that no line is longer than `room` if that is possible; lines after the first begin
// with `indent` blanks. room 0: as it is.
std::string BrokenAtCommas(const std::string& text, size_t room, size_t indent);

// Breaks at blanks, likewise.
std::string BrokenAtBlanks(const std::string& text, size_t room, size_t indent);

}  // namespace cw::cli
