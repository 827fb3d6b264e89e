// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/pace.h"

#include <algorithm>
#include <utility>

namespace cw::agent {

void Pace::Begin(int64_t now_ns, std::function<void(bool busy)> set) {
  busy_ns_ = now_ns;
  set_ = std::move(set);
}

void Pace::Hurry(int64_t now_ns) {
  NeedsProbes(now_ns);
  Set(true);
}

void Pace::Look(const FlowBook& flows, int64_t now_ns) {
  if (std::any_of(flows.sent.begin(), flows.sent.end(), [](const auto& f) { return f.second.window_packets > 0; }))
    NeedsProbes(now_ns);
  Set(now_ns - busy_ns_ < kQuietAfterNs);
}

void Pace::Set(bool busy) {
  if (busy == busy_) return;
  busy_ = busy;
  if (set_) set_(busy);
}

}  // namespace cw::agent
