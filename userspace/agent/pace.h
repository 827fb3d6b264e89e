// SPDX-License-Identifier: Apache-2.0
//
// How often the agent wakes: often while there is something to look after, seldom without, because a wake-up then costs
// more than its work; and the more seldom, the more its thread is above its share of the host's processors. What cannot
// wait (a dead path) is the programs' work, not the agent's. Times: CLOCK_MONOTONIC, ns. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "userspace/agent/flow_book.h"
#include "userspace/probe/allowance.h"

namespace cw::agent {

class Pace {
 public:
  static constexpr int64_t kQuietAfterNs = 10'000'000'000;  // without flows
  static constexpr int kMostStretch = 10;
  static constexpr absl::Duration kSeldom = absl::Milliseconds(100);

  struct Options {
    double most_cpu = 0;              // processor seconds per second of the loop's thread; 0: no limit
    std::function<int64_t()> cpu_ns;  // what that thread has used so far
    std::function<void(int stretch)> set;
  };

  // A timer's period at a stretch: so many times its own, but no more seldom than kSeldom makes it.
  static absl::Duration Stretched(absl::Duration period, int stretch);

  // At the start, which is busy: young clock lines need the newest probes. `set` is told of changes.
  void Begin(int64_t now_ns, Options options);
  // Something needs the newest probes …
  void NeedsProbes(int64_t now_ns) { busy_ns_ = now_ns; }
  // … or cannot wait for the next wake-up.
  void Hurry(int64_t now_ns);
  // In each window. Flows that send nothing are no work: most of them have ended.
  void Look(const FlowBook& flows, int64_t now_ns);

  // 1: as often as it can be of use; kMostStretch: nothing is to do, or the thread is far above its share.
  int stretch() const { return stretch_; }
  // For the share's sake alone, 1 to kMostStretch.
  int slowed() const;

 private:
  void Update();

  Options options_;
  probe::CpuAllowance allowance_{0};
  bool busy_ = true;
  int stretch_ = 1;
  int64_t busy_ns_ = 0;
};

}  // namespace cw::agent
