// SPDX-License-Identifier: Apache-2.0
//
// Text from outside (names, reasons, what hosts and services say) for a terminal or a line of a log: control
// characters (C0 with newlines, DEL, C1), separators of lines and paragraphs, and marks that turn the direction of text
// become '?', one for each; bytes that are no UTF-8 become U+FFFD. Sources: ECMA-48; Unicode UAX 9; CVE-2021-42574.
// Pure; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace cw {

std::string Printable(absl::string_view text);
// The same for text of several lines: newlines and tabs stay.
std::string PrintableLines(absl::string_view text);
// The same for JSON, where it means what it meant: "\u202e" in place of the mark itself. Newlines and tabs stay, which
// JSON has between its values alone.
std::string PrintableJson(absl::string_view json);

}  // namespace cw
