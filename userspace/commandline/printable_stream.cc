// SPDX-License-Identifier: Apache-2.0
#include "userspace/commandline/printable_stream.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "userspace/model/printable.h"

namespace cw::commandline {
namespace {

constexpr size_t kMostWaits = 64 << 10;
// Colours of cli/table, and --watch's new screen. Nothing that moves the cursor elsewhere, or hides text.
constexpr std::array<absl::string_view, 7> kOwn = {"\033[0m",  "\033[1m",  "\033[2m",     "\033[31m",
                                                   "\033[32m", "\033[33m", "\033[H\033[J"};

std::string Clean(absl::string_view text, bool json) {
  if (json) return PrintableJson(text);
  std::string out;
  while (!text.empty()) {
    const size_t escape = text.find('\033');
    out += PrintableLines(text.substr(0, escape));
    if (escape == absl::string_view::npos) break;
    text.remove_prefix(escape);
    size_t own = 0;
    for (const absl::string_view sequence : kOwn) {
      if (absl::StartsWith(text, sequence)) own = sequence.size();
    }
    out += own == 0 ? "?" : std::string(text.substr(0, own));
    text.remove_prefix(own == 0 ? 1 : own);
  }
  return out;
}

}  // namespace

PrintableStream::PrintableStream(std::ostream& stream) : stream_(stream), below_(stream.rdbuf(this)) {}

PrintableStream::~PrintableStream() {
  sync();
  stream_.rdbuf(below_);
}

bool PrintableStream::Pass(size_t size) {
  const std::string clean = Clean(absl::string_view(waits_).substr(0, size), json_);
  waits_.erase(0, size);
  return below_->sputn(clean.data(), static_cast<std::streamsize>(clean.size())) ==
         static_cast<std::streamsize>(clean.size());
}

PrintableStream::int_type PrintableStream::overflow(int_type c) {
  if (c == traits_type::eof()) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

// Whole lines at least, so that no character is cut in two.
std::streamsize PrintableStream::xsputn(const char* text, std::streamsize size) {
  waits_.append(text, static_cast<size_t>(size));
  const size_t line = waits_.size() < kMostWaits ? std::string::npos : waits_.rfind('\n');
  return line == std::string::npos || Pass(line + 1) ? size : 0;
}

int PrintableStream::sync() {
  const bool passed = Pass(waits_.size());
  return below_->pubsync() == 0 && passed ? 0 : -1;
}

}  // namespace cw::commandline
