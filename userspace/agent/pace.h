// SPDX-License-Identifier: Apache-2.0
//
// How often the agent wakes: often while there is something to look after, seldom without, because a wake-up then costs
// more than its work. Times: CLOCK_MONOTONIC, ns. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>

#include "userspace/agent/flow_book.h"

namespace cw::agent {

class Pace {
 public:
  static constexpr int64_t kQuietAfterNs = 10'000'000'000;  // without flows

  // At the start, which is busy: young clock lines need the newest probes. `set` is told of changes.
  void Begin(int64_t now_ns, std::function<void(bool busy)> set);
  // Something needs the newest probes …
  void NeedsProbes(int64_t now_ns) { busy_ns_ = now_ns; }
  // … or cannot wait for the next wake-up.
  void Hurry(int64_t now_ns);
  // In each window. Flows that send nothing are no work: most of them have ended.
  void Look(const FlowBook& flows, int64_t now_ns);
  bool busy() const { return busy_; }

 private:
  void Set(bool busy);

  std::function<void(bool busy)> set_;
  bool busy_ = true;
  int64_t busy_ns_ = 0;
};

}  // namespace cw::agent
