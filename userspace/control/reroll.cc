// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/reroll.h"

namespace cw::control {

bool RerollWatch::Step(const TailView& view, int64_t now_ns) {
  const bool waits = Unacknowledged(view) > 0;
  if (!waits || quiet_since_ns_ == 0 || view.acked != acked_) {
    quiet_since_ns_ = wait_since_ns_ = waits ? now_ns : 0;
    acked_ = view.acked;
    wait_ns_ = rules_.quiet_ns;
    rolls_ = 0;
    return false;
  }
  if (now_ns - wait_since_ns_ < wait_ns_ || rolls_ >= rules_.max_rolls) return false;
  ++rolls_;
  wait_since_ns_ = now_ns;
  wait_ns_ *= rules_.backoff;
  return true;
}

}  // namespace cw::control
