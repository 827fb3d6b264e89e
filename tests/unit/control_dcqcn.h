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
  explicit DcqcnSender(double line_bps) : line_(line_bps), rate_(line_bps), target_(line_bps) {}

  void OnCnp(double t) {
    Advance(t);
    target_ = rate_;
    rate_ = std::max(line_ / 100, rate_ * (1 - alpha_ / 2));
    alpha_ += (1 - alpha_) / 16;
    steps_ = 0;
    next_alpha_ = t + 1.1e-3;
    next_increase_ = t + 2e-3;
  }
  double Rate(double t) {
    Advance(t);
    return rate_;
  }

 private:
  void Advance(double t) {
    for (; t >= next_alpha_ && alpha_ > 1e-4; next_alpha_ += 1.1e-3) alpha_ *= 15.0 / 16;
    for (; t >= next_increase_ && rate_ < line_; next_increase_ += 2e-3) {
      if (steps_++ >= 5) target_ = std::min(line_, target_ + line_ / 100);
      rate_ = (rate_ + target_) / 2;
      if (rate_ > 0.999 * line_) rate_ = target_ = line_;
    }
  }

  double line_, rate_, target_;
  double alpha_ = 1;
  int steps_ = 0;
  double next_alpha_ = 0, next_increase_ = 0;
};

// A queue, and the virtual queue beside it that drains a little slower and decides on CE marks.
class MarkingLink {
 public:
  MarkingLink(double bps, double packet_bits) : bps_(bps), packet_bits_(packet_bits) {}
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
  static double MarkChanceAt(double virtual_s) {
    return virtual_s > 1e-3 ? 1 : std::max(0.0, 0.2 * (virtual_s - 250e-6) / 750e-6);
  }
  double bps_, packet_bits_;
  double free_at_ = 0, virtual_s_ = 0, virtual_at_ = 0;
};

}  // namespace cw::control
