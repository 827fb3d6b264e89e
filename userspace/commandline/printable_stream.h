// SPDX-License-Identifier: Apache-2.0
//
// The last fence before a terminal: whatever a program writes to standard output or error, no control character, escape
// or mark that turns the direction of text gets through, but newlines, tabs and the program's own colours (kOwn). Those
// who write use Printable as well: a newline from outside is theirs to take away.
// Thread rule: as the stream's own.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace cw::commandline {

class PrintableStream final : public std::streambuf {
 public:
  // Takes the stream's place at its buffer until it ends. The stream outlives it.
  explicit PrintableStream(std::ostream& stream);
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

  // From here on it is JSON that is written, and what must not get through is escaped in its way.
  void SetJson() { json_ = true; }

 private:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;
  bool Pass(size_t size);  // of what waits

  std::ostream& stream_;
  std::streambuf* const below_;
  std::string waits_;
  bool json_ = false;
};

}  // namespace cw::commandline
