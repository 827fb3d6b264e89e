// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a wide table are shown: those that fit the terminal, those that were named, or all. Pure, but for
// TerminalWidth.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::cli {

struct ColumnChoice {
  std::string name;     // as -o names it
  int importance = 0;   // the least important ones go first where room is short
};

// All columns when `typed` is "wide", or empty with room 0; those named, in that order; otherwise those that fit into
// `room` characters, `widths` being those of the columns. InvalidArgument: no such column, with those that there are.
absl::StatusOr<std::vector<size_t>> ChooseColumns(const std::vector<ColumnChoice>& columns,
                                                  const std::vector<size_t>& widths, const std::string& typed,
                                                  size_t room);

// Of the terminal on standard output; 0: it is none, or its width is not known.
size_t TerminalWidth();

}  // namespace cw::cli
