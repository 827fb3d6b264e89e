// SPDX-License-Identifier: Apache-2.0
//
// How often each path died within the past hour, as its host reports: what flaps is what such paths share. A death that
// came and went between two reports is not seen; the agents' own counts have those. Bounded. Pure: time comes in, ns
// since 1970. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"

namespace cw::fleet {

class PathFlaps {
 public:
  // The newest word of a path. since_ns: when it fell silent, by its host's clock; 0: not known. now_ns: our clock.
  void Take(uint64_t path, bool dead, int64_t since_ns, int64_t now_ns);
  void Age(int64_t now_ns);
  size_t CountOf(uint64_t path) const;
  int64_t LastNs(uint64_t path) const;  // of its last death; 0: none
  bool empty() const { return paths_.empty(); }

 private:
  struct Path {
    std::deque<int64_t> died_ns;
    int64_t since_ns = 0;
    bool dead = false;
  };
  absl::flat_hash_map<uint64_t, Path> paths_;  // that died
};

}  // namespace cw::fleet
