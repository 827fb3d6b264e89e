// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "userspace/model/utf8.h"

namespace cw {
namespace {

// Of two or three bytes, in UTF-8 without faults; 0: another length, none of which is looked for.
uint32_t PointAt(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  if ((byte(0) & 0xe0) == 0xc0 && at + 1 < text.size()) return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
  if ((byte(0) & 0xf0) == 0xe0 && at + 2 < text.size())
    return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return 0;
}

bool Turns(uint32_t point) {
  return point == 0x061c || point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
         (point >= 0x2066 && point <= 0x2069);
}

// replace: what is printed in place of a point.
template <typename Replace>
std::string Replaced(absl::string_view given, const Replace& replace) {
  const std::string text = CutUtf8(given, 3 * given.size());
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const uint32_t point = PointAt(text, i);
    const bool c1 = point >= 0x80 && point < 0xa0;
    if (c1 || Turns(point)) {
      out += replace(point);
      i += c1 || point == 0x061c ? 1 : 2;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += replace(byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

bool PartsLines(uint32_t point) { return point == '\n' || point == '\t'; }

}  // namespace

std::string Printable(absl::string_view text) {
  return Replaced(text, [](uint32_t) { return std::string("?"); });
}

std::string PrintableLines(absl::string_view text) {
  return Replaced(text,
                  [](uint32_t point) { return std::string(1, PartsLines(point) ? static_cast<char>(point) : '?'); });
}

std::string PrintableJson(absl::string_view json) {
  return Replaced(json, [](uint32_t point) {
    return PartsLines(point) ? std::string(1, static_cast<char>(point)) : absl::StrFormat("\\u%04x", point);
  });
}

}  // namespace cw
