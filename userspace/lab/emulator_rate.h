// SPDX-License-Identifier: Apache-2.0
// The sending rate of a queue pair: multiplicative decrease on CNP, recovery and additive increase by timer.
//
// After DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, §3): the reaction point
// without the byte counter and without hyper increase. Timers scale with the link, because the published ones
// are for 40 Gbit/s and a lab link carries a hundredth of it.
// Thread rule: one owner. Time: nanoseconds of any monotonic clock, passed in.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cw::lab {

struct RateConfig {
  double line_bps = 400e6;                                // start and ceiling, on the wire
  double min_bps = 4e6;                                   // floor
  double additive_bps = 4e6;                              // increase of the target per timer after recovery
  double gain = 1.0 / 16;                                 // weight of the newest period in alpha
  absl::Duration cnp_interval = absl::Milliseconds(1);    // notification point: at most one CNP per interval
  absl::Duration alpha_timer = absl::Microseconds(1100);  // alpha decays when no CNP came for so long
  absl::Duration increase_timer = absl::Milliseconds(2);  // period of the rate's increase
  int recovery_steps = 1;                                 // steps back towards the old rate before the target grows
  bool reacts = true;                                     // false: CNPs are counted and ignored

  // Timers and steps for a link of `line_bps`: 1 ms between CNPs at 400 Mbit/s, 50 µs at 8 Gbit/s and above.
  static RateConfig ForLine(double line_bps);
};

class RateController {
 public:
  explicit RateController(const RateConfig& config);

  void OnCnp(int64_t now_ns);

  // Bits per second now, between min_bps and line_bps.
  double RateBps(int64_t now_ns);

  double alpha() const { return alpha_; }

 private:
  void Advance(int64_t now_ns);
  void Increase();

  RateConfig config_;
  double rate_bps_;
  double target_bps_;
  double alpha_ = 1.0;
  int64_t alpha_timer_ns_;
  int64_t increase_timer_ns_;
  int64_t next_alpha_ns_ = 0;
  int64_t next_increase_ns_ = 0;
  int steps_ = 0;
  bool reduced_ = false;  // some CNP's effect is left
};

}  // namespace cw::lab
