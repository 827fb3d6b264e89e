// SPDX-License-Identifier: Apache-2.0
//
// libbpf says why something failed on a process-wide print hook only. While a LibbpfLog lives, its thread's warnings
// are kept here instead of going to stderr; with none alive they become debug lines of the log.
#pragma once

#include <string>

namespace cw::dataplane {

class LibbpfLog {
 public:
  LibbpfLog();
  ~LibbpfLog();
  LibbpfLog(const LibbpfLog&) = delete;
  LibbpfLog& operator=(const LibbpfLog&) = delete;

  // Warnings so far, at most 64 KiB.
  const std::string& text() const { return text_; }

 private:
  friend struct LibbpfLogHook;
  std::string text_;
  LibbpfLog* outer_;
};

}  // namespace cw::dataplane
