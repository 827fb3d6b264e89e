// SPDX-License-Identifier: Apache-2.0
//
// Where the agent listens, as the configuration says it: "none", "unix:/PATH", "127.0.0.1:9477" or "[::1]:9477".
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cw::config {

struct Listen {
  enum class Kind { kNone, kUnix, kTcp };
  Kind kind = Kind::kNone;
  std::string path;      // kUnix
  std::string address;   // kTcp: IPv4 or IPv6, without brackets
  uint16_t port = 0;     // kTcp
  bool loopback = true;  // nobody but this host reaches it

  bool operator==(const Listen&) const = default;
};

// InvalidArgument: what is wanted, as the end of a sentence "… must be ".
absl::StatusOr<Listen> ParseListen(const std::string& text);

}  // namespace cw::config
