// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/utf8.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cw {
namespace {

// Of the character that the text begins with; 0: of none.
size_t CharacterBytes(absl::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  // No longer form than needed, no surrogate, nothing beyond U+10FFFF.
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  return bytes;
}

}  // namespace

std::string CutUtf8(absl::string_view text, size_t most_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const absl::string_view character = bytes == 0 ? absl::string_view("\xEF\xBF\xBD") : text.substr(0, bytes);
    if (out.size() + character.size() > most_bytes) break;
    absl::StrAppend(&out, character);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace cw
