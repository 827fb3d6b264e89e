// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/engine_ticks.h"

#include <algorithm>

#include "absl/time/time.h"

namespace cw::agent {

void EngineTicks::Schedule() {
  const int64_t now_ns = clock_.NowNs();
  const int64_t next_ns = engine_.next(now_ns);
  if (next_ns == INT64_MAX || next_ns >= at_ns_) return;
  at_ns_ = next_ns;
  timers_.After(absl::Nanoseconds(std::max<int64_t>(next_ns - now_ns, 0)), [this, next_ns] {
    if (at_ns_ != next_ns) return;  // an earlier one was scheduled since, and took over
    at_ns_ = INT64_MAX;
    engine_.tick(clock_.NowNs());
    Schedule();
  });
}

}  // namespace cw::agent
