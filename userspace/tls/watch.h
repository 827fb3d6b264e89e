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

class Watch {
 public:
  explicit Watch(Files files) : files_(std::move(files)) {}

  struct News {
    std::optional<Material> fresh;  // the files changed, and are good
    absl::Status problem;           // they changed and are not: said once for each state of theirs
  };
  News Look();

 private:
  struct Stamp {
    int64_t inode = 0, size = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;
  Stamps Now() const;

  const Files files_;
  std::optional<Stamps> taken_;  // of what was last taken
  std::string told_;             // the problem that was said last
};

}  // namespace cw::tls
