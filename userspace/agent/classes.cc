// SPDX-License-Identifier: Apache-2.0
// Probes ride in the class of the flows that they stand for (control/flow_class.h): otherwise they would wait in other
// queues than the flows do, and pass while the flows' class is paused.
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

constexpr int kMostPairs = 64;  // pairs per window: each change makes up to sixteen packets anew

}  // namespace

void Agent::FollowClasses(int64_t now_ns) {
  if (options_.config.probe.dscp) return;
  int changed = 0;
  for (auto& [index, pair] : pairs_) {
    if (changed == kMostPairs) return;
    if (!pair->flow_class.Step(now_ns)) continue;
    engine_->SetDscp(index, *pair->flow_class.dscp());
    ++changed;
  }
}

}  // namespace cw::agent
