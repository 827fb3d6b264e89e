// SPDX-License-Identifier: Apache-2.0
//
// Paths that flap: how long a path that came back is kept out, and how many flows it may have at first. Links that flap
// (control/link_book.h) are kept out by the same rule.
// Sources: route flap damping, RFC 2439, with the well-known figures of IP event dampening.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <deque>

namespace cw::control {

struct DampingRules {
  double penalty = 1000;          // per down event
  double half_life_s = 5;         // of what is left of it
  double suppress_above = 2000;   // from here on the path is kept out …
  double reuse_below = 1000;      // … until it has decayed to this
  double max_suppress_s = 20;     // at most for so long after the last down event
  double return_step_s = 1;       // a path that came back takes 1 flow, after each step twice as many
  int64_t flaps_window_s = 3600;  // deaths are counted for so long
};

class PathDamping {
 public:
  explicit PathDamping(const DampingRules& rules = {}) : rules_(rules) {}

  void Down(int64_t now_ns);
  void Up(int64_t now_ns);

  double PenaltyAt(int64_t now_ns) const;
  // May flows be put here? Down paths may not, damped ones may not.
  bool UsableAt(int64_t now_ns);
  // When a damped path becomes usable; now_ns when it is not damped.
  int64_t ReuseAtNs(int64_t now_ns) const;
  // How many flows may have been put back since the path came back; INT64_MAX when the return is over.
  int64_t ReturnBudget(int64_t now_ns) const;

 private:
  DampingRules rules_;
  bool down_ = false;
  bool suppressed_ = false;
  double penalty_ = 0;  // at penalty_ns_
  int64_t penalty_ns_ = 0;
  int64_t last_down_ns_ = 0;
  int64_t usable_since_ns_ = INT64_MIN;  // of a path that was down or damped; INT64_MIN: never was
};

// A path's deaths within an exact sliding window.
class FlapCounter {
 public:
  explicit FlapCounter(const DampingRules& rules = {}) : rules_(rules) {}

  void Down(int64_t now_ns);
  int CountAt(int64_t now_ns);

 private:
  DampingRules rules_;
  std::deque<int64_t> downs_ns_;
};

}  // namespace cw::control
