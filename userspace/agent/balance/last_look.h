// SPDX-License-Identifier: Apache-2.0
//
// Moves for balance that wait for a last look at both of their candidates (control/best_of_two.h), and what was seen.
// Pure: time comes in. Thread rule: the agent's loop.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "userspace/control/contention.h"

namespace cw::agent {

struct LastLook {
  control::Move move;
  uint32_t pair = 0;
  int64_t asked_ns = 0;                        // local time: probes sent from then on count
  int64_t due_ns = 0;                          // monotonic: what has not come by then is not waited for
  std::array<std::vector<int64_t>, 2> owd_ns;  // of the probes of move.to and move.second

  // Of the candidate: how many probes, and what they waited in queues on average.
  control::FreshLook Seen(size_t candidate, bool usable, double base_ns) const;
};

class LastLooks {
 public:
  void Begin(LastLook look) { open_.push_back(std::move(look)); }
  bool empty() const { return open_.empty(); }
  // A probe that was sent at t1_ns, local time.
  void Answered(uint32_t pair, uint8_t slot, int64_t t1_ns, int64_t owd_ns);
  // Those that are due; INT64_MAX: all.
  std::vector<LastLook> TakeDue(int64_t now_ns);

  // What the rule is to be told with the next window.
  void Keep(const control::Reprobe& seen) { seen_.push_back(seen); }
  std::vector<control::Reprobe> TakeSeen() { return std::exchange(seen_, {}); }

 private:
  std::vector<LastLook> open_;
  std::vector<control::Reprobe> seen_;
};

}  // namespace cw::agent
