// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_rate.h"

#include <algorithm>
#include <cmath>

namespace cw::lab {

RateConfig RateConfig::ForLine(double line_bps) {
  RateConfig c;
  c.line_bps = line_bps;
  c.min_bps = line_bps / 100;
  c.additive_bps = line_bps / 100;
  const double cnp_us = std::clamp(1000.0 * 400e6 / line_bps, 50.0, 10000.0);
  c.cnp_interval = absl::Microseconds(cnp_us);
  c.alpha_timer = absl::Microseconds(1.1 * cnp_us);
  c.increase_timer = absl::Microseconds(2 * cnp_us);
  return c;
}

RateController::RateController(const RateConfig& config)
    : config_(config),
      rate_bps_(config.line_bps),
      target_bps_(config.line_bps),
      alpha_timer_ns_(std::max<int64_t>(1000, absl::ToInt64Nanoseconds(config.alpha_timer))),
      increase_timer_ns_(std::max<int64_t>(1000, absl::ToInt64Nanoseconds(config.increase_timer))) {}

void RateController::OnCnp(int64_t now_ns) {
  if (!config_.reacts) return;
  Advance(now_ns);
  target_bps_ = rate_bps_;
  rate_bps_ = std::max(config_.min_bps, rate_bps_ * (1 - alpha_ / 2));
  alpha_ = (1 - config_.gain) * alpha_ + config_.gain;
  steps_ = 0;
  reduced_ = true;
  next_alpha_ns_ = now_ns + alpha_timer_ns_;
  next_increase_ns_ = now_ns + increase_timer_ns_;
}

double RateController::RateBps(int64_t now_ns) {
  if (reduced_) Advance(now_ns);
  return rate_bps_;
}

void RateController::Advance(int64_t now_ns) {
  if (!reduced_) return;
  if (now_ns >= next_alpha_ns_) {
    const int64_t periods = 1 + (now_ns - next_alpha_ns_) / alpha_timer_ns_;
    alpha_ *= std::pow(1 - config_.gain, static_cast<double>(periods));
    next_alpha_ns_ += periods * alpha_timer_ns_;
  }
  // Ends after (line / additive_bps + recovery_steps) steps at the latest, because the target grows by then.
  for (; rate_bps_ < config_.line_bps && next_increase_ns_ <= now_ns; next_increase_ns_ += increase_timer_ns_) {
    Increase();
  }
}

void RateController::Increase() {
  if (steps_++ >= config_.recovery_steps) target_bps_ = std::min(config_.line_bps, target_bps_ + config_.additive_bps);
  rate_bps_ = (rate_bps_ + target_bps_) / 2;
  if (config_.line_bps - rate_bps_ < 1e-3 * config_.line_bps) rate_bps_ = target_bps_ = config_.line_bps;
}

}  // namespace cw::lab
