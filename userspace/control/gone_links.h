// SPDX-License-Identifier: Apache-2.0
//
// Links that paths took and take no more: where a link is down, switches send its paths elsewhere, and a list of the
// links in use would just be shorter. Kept for an hour, the oldest dropped first.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace cw::control {

struct GoneLink {
  std::string from, to;  // addresses of the ports before its two ends
  int64_t left_ns = 0;   // when a path was last known to take it
};

class GoneLinks {
 public:
  static constexpr int64_t kWindowNs = 3'600'000'000'000;
  static constexpr size_t kMost = 1024;

  // A path went from `from` over ports of these addresses, in order, and goes there no more.
  void Left(const std::string& from, absl::Span<const std::string> ends, int64_t now_ns);
  // Of the window, in the order of their ends. Some of them may be in use by other paths.
  std::vector<GoneLink> All(int64_t now_ns) const;

 private:
  std::map<std::string, GoneLink> by_end_;
};

}  // namespace cw::control
