// SPDX-License-Identifier: Apache-2.0
//
// Parts that the simulators of the control rules share: a sender after DCQCN (Zhu et al., SIGCOMM 2015) with timers for
// slow links, and a link with a queue and CE marks from a virtual queue. Time in seconds. Values; one thread each.
#pragma once

#include <algorithm>

namespace cw::control {

// The sender's reaction point: cut on CNP, fast recovery, additive increase.
class DcqcnSender {
 public:
  // cnp_interval_s: of its receiver; the timers go with it.
  explicit DcqcnSender(double line_bps, double cnp_interval_s = 1e-3)
      : line_(line_bps),
        rate_(line_bps),
        target_(line_bps),
        alpha_timer_s_(1.1 * cnp_interval_s),
        increase_timer_s_(2 * cnp_interval_s) {}

  void OnCnp(double t) {
    Advance(t);
    target_ = rate_;
    rate_ = std::max(line_ / 100, rate_ * (1 - alpha_ / 2));
    alpha_ += (1 - alpha_) / 16;
    steps_ = 0;
    next_alpha_ = t + alpha_timer_s_;
    next_increase_ = t + increase_timer_s_;
  }
  double Rate(double t) {
    Advance(t);
    return rate_;
  }

 private:
  void Advance(double t) {
    for (; t >= next_alpha_ && alpha_ > 1e-4; next_alpha_ += alpha_timer_s_) alpha_ *= 15.0 / 16;
    for (; t >= next_increase_ && rate_ < line_; next_increase_ += increase_timer_s_) {
      if (steps_++ >= 5) target_ = std::min(line_, target_ + line_ / 100);
      rate_ = (rate_ + target_) / 2;
      if (rate_ > 0.999 * line_) rate_ = target_ = line_;
    }
  }

  double line_, rate_, target_, alpha_timer_s_, increase_timer_s_;
  double alpha_ = 1;
  int steps_ = 0;
  double next_alpha_ = 0, next_increase_ = 0;
};

// A queue, and the virtual queue beside it that drains a little slower and decides on CE marks.
class MarkingLink {
 public:
  // mark_from_s: of virtual queue, where marks begin; four times as much is always marked.
  MarkingLink(double bps, double packet_bits, double mark_from_s = 250e-6)
      : bps_(bps), packet_bits_(packet_bits), mark_from_s_(mark_from_s) {}
  double WaitS(double t) const { return std::max(0.0, free_at_ - t); }
  double bps() const { return bps_; }
  // Returns the time of departure; sets *ce with the marking probability's chance.
  double Send(double t, double chance, bool* ce) {
    free_at_ = std::max(free_at_, t) + packet_bits_ / bps_;
    virtual_s_ = std::max(0.0, virtual_s_ - (t - virtual_at_) * 0.97) + packet_bits_ / bps_;
    virtual_at_ = t;
    if (chance < MarkChanceAt(virtual_s_)) *ce = true;
    return free_at_;
  }
  // Of a packet too small to count.
  double MarkChance(double t) const { return MarkChanceAt(std::max(0.0, virtual_s_ - (t - virtual_at_) * 0.97)); }

 private:
  double MarkChanceAt(double virtual_s) const {
    return virtual_s > 4 * mark_from_s_ ? 1 : std::max(0.0, 0.2 * (virtual_s / mark_from_s_ - 1) / 3);
  }
  double bps_, packet_bits_, mark_from_s_;
  double free_at_ = 0, virtual_s_ = 0, virtual_at_ = 0;
};

}  // namespace cw::control
