// SPDX-License-Identifier: Apache-2.0
//
// Failover where a flow's path is not that of the probes with its port, because switches hash on the destination QPN
// or the TTL too. Nobody knows which path such a flow is on; but while a path between two NICs is dead, a flow of
// theirs that has packets under way and gets no acknowledgement is most likely on it, and another port is another throw
// of the dice. The idea is that of PRR (Wetherall et al., Improving Network Availability with Protective ReRoute,
// SIGCOMM 2023); the dead path is the second witness, without which a slow receiver would do. Pure: time comes in (any
// monotonic clock). One thread per object.
#pragma once

#include <cstdint>

#include "userspace/control/tail_repair.h"

namespace cw::control {

struct RerollRules {
  int64_t quiet_ns = 8'000'000;  // so long without progress before the first throw …
  int backoff = 2;               // … and so many times longer before each further one
  int max_rolls = 8;             // without progress in between: with half of the paths dead, 1 flow in 256 stays
};

// One sent flow of a pair of NICs between which a path is dead.
class RerollWatch {
 public:
  explicit RerollWatch(const RerollRules& rules = {}) : rules_(rules), wait_ns_(rules.quiet_ns) {}

  // True: the flow shall have another port now.
  bool Step(const TailView& view, int64_t now_ns);
  int rolls() const { return rolls_; }  // since the last progress
  int64_t quiet_ns(int64_t now_ns) const { return now_ns - quiet_since_ns_; }

 private:
  RerollRules rules_;
  int64_t quiet_since_ns_ = 0;  // 0: nothing is under way
  int64_t wait_since_ns_ = 0;
  int64_t wait_ns_;
  uint32_t acked_ = 0;
  int rolls_ = 0;
};

}  // namespace cw::control
