// SPDX-License-Identifier: Apache-2.0
//
// The three files of a server, looked at anew whenever somebody connects: a new certificate is taken without a restart,
// and while the files are half written, or wrong, the last good ones go on. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "userspace/tls/certificate.h"

namespace cw::tls {

// What tells that a file was changed; all 0 when there is none. Through links, so that an exchanged link is a change,
// too.
struct FileStamp {
  int64_t inode = 0, size = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
FileStamp StampOf(const std::string& path);

class Watch {
 public:
  explicit Watch(Files files) : files_(std::move(files)) {}

  struct News {
    std::optional<Material> fresh;  // the files changed, and are good
    absl::Status problem;           // they changed and are not: said once for each state of theirs
  };
  News Look();

 private:
  using Stamps = std::array<FileStamp, 3>;

  const Files files_;
  std::optional<Stamps> taken_;  // of what was last taken
  std::string told_;             // the problem that was said last
};

}  // namespace cw::tls
