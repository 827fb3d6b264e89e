// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/last_look.h"

#include <algorithm>
#include <numeric>

namespace cw::agent {

control::FreshLook LastLook::Seen(size_t candidate, bool usable, double base_ns) const {
  const std::vector<int64_t>& fresh = owd_ns[candidate];
  const bool second = candidate == 1;
  control::FreshLook seen{.slot = second ? move.second : move.to,
                          .usable = usable,
                          .samples = static_cast<int>(fresh.size()),
                          .queue_ns = second ? move.second_queue_ns : move.queue_ns,
                          .base_ns = base_ns};
  if (fresh.empty()) return seen;
  const double sum = std::accumulate(fresh.begin(), fresh.end(), 0.0);
  seen.queue_ns = std::max(0.0, sum / static_cast<double>(fresh.size()) - base_ns);
  return seen;
}

void LastLooks::Answered(uint32_t pair, uint8_t slot, int64_t t1_ns, int64_t owd_ns) {
  for (LastLook& look : open_) {
    if (look.pair != pair || t1_ns < look.asked_ns) continue;
    if (slot == look.move.to) look.owd_ns[0].push_back(owd_ns);
    if (slot == look.move.second) look.owd_ns[1].push_back(owd_ns);
  }
}

std::vector<LastLook> LastLooks::TakeDue(int64_t now_ns) {
  const auto waits = [&](const LastLook& look) { return look.due_ns > now_ns; };
  const auto due = std::stable_partition(open_.begin(), open_.end(), waits);
  std::vector<LastLook> taken(std::make_move_iterator(due), std::make_move_iterator(open_.end()));
  open_.erase(due, open_.end());
  return taken;
}

}  // namespace cw::agent
