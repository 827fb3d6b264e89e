// SPDX-License-Identifier: Apache-2.0
//
// What paths took when they were whole. The hops of a dead path are traced again, by an agent that starts anew at the
// latest, and then end where it is cut: that says where it is cut, and no longer what it crosses. Pure. Threads: one at
// a time.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "userspace/fleet/findings/picture.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

class WholeHops {
 public:
  static constexpr int64_t kKeptNs = 3'600'000'000'000;  // since it was whole last
  static constexpr size_t kMost = 4'000'000;             // paths

  // Replaces the hops of a path by the longer ones that it had when it lived, where what answers now is the beginning
  // of them.
  // path.hops: as traced, known; they and what they point to outlive this.
  void Complete(PathEvidence& path, int64_t now_ns);
  // Those that were not whole for an hour go. Seldom.
  void Age(int64_t now_ns);

 private:
  struct Whole {
    const std::vector<Addr>* hops = nullptr;
    uint64_t hops_id = 0;
    int64_t time_ns = 0;
  };
  std::map<std::tuple<Addr, Addr, uint16_t>, Whole> whole_;
};

}  // namespace cw::fleet
