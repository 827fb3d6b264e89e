// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sync_noise_sim.h"

#include <algorithm>
#include <cmath>

namespace cw::sync {
namespace {

constexpr double kEpochS = 100;
constexpr double kWanderStepS = 0.01;
constexpr double kPi = 3.14159265358979323846;

}  // namespace

double SimClock::WanderNs(double true_s) const {
  if (wander_ppb == 0) return 0;
  if (wandered_ns_.empty()) {
    random_.seed(seed);
    wandered_ns_.push_back(0);
  }
  const double place = std::max(0.0, true_s) / kWanderStepS;
  const auto index = static_cast<size_t>(place);
  std::normal_distribution<double> step(0, wander_ppb * std::sqrt(kWanderStepS));
  while (wandered_ns_.size() < index + 2) {
    wander_rate_ppb_ += step(random_);
    wandered_ns_.push_back(wandered_ns_.back() + wander_rate_ppb_ * kWanderStepS);
  }
  const double part = place - static_cast<double>(index);
  return wandered_ns_[index] * (1 - part) + wandered_ns_[index + 1] * part;
}

double SimClock::ErrorNs(double true_s) const {
  double error = WanderNs(true_s), drift_ppm = 0, since = 0;
  if (swing_ppb != 0) {
    const double turn = 2 * kPi / swing_period_s;
    error += swing_ppb / turn * (1 - std::cos(turn * true_s));
  }
  for (const Change& c : changes) {
    if (c.at_s > true_s) break;
    error += (c.at_s - since) * drift_ppm * 1e3 + c.step_ns;
    drift_ppm = c.drift_ppm;
    since = c.at_s;
  }
  return error + (true_s - since) * drift_ppm * 1e3;
}

int64_t SimClock::At(double true_s) const {
  return std::llround((kEpochS + true_s) * 1e9) + std::llround(ErrorNs(true_s));
}

SimQueue::SimQueue(Traffic traffic, double load, double packet_ns, uint64_t seed)
    : traffic_(traffic), load_(load), packet_ns_(packet_ns), random_(seed), rate_(load) {
  next_ns_ = load > 0 ? Exponential(packet_ns / load) : HUGE_VAL;
}

double SimQueue::WaitNs(double true_s) {
  const double at_ns = std::max(now_ns_, true_s * 1e9);
  while (next_ns_ <= at_ns) Arrive();
  wait_ns_ = std::max(0.0, wait_ns_ - (at_ns - now_ns_));
  now_ns_ = at_ns;
  return wait_ns_;
}

void SimQueue::Arrive() {
  wait_ns_ = std::max(0.0, wait_ns_ - (next_ns_ - now_ns_));
  now_ns_ = next_ns_;
  const double burst = traffic_ == Traffic::kBursts ? 8 : 1;
  if (sending_) wait_ns_ += burst * packet_ns_;
  if (traffic_ == Traffic::kReacting) React(now_ns_);
  next_ns_ += Exponential(burst * packet_ns_ / rate_);
}

// Additive increase, multiplicative decrease, once per half a millisecond; pauses hold the mean load.
void SimQueue::React(double now_ns) {
  if (now_ns > phase_ends_ns_) {
    sending_ = !sending_;
    phase_ends_ns_ = now_ns + Exponential(30e6 * (sending_ ? load_ / (1 - 0.99 * load_) : 1));
    rate_ = 1;
  }
  if (now_ns - reacted_ns_ < 5e5) return;
  reacted_ns_ = now_ns;
  rate_ = wait_ns_ > 5e5 ? std::max(0.5, rate_ * 0.85) : std::min(1.3, rate_ + 0.01);
}

SimStamps::SimStamps(const StampNoise& noise, double base_ns, uint64_t seed, uint64_t common_seed)
    : noise_(noise), base_ns_(base_ns), random_(seed), common_random_(common_seed) {
  // Stationary from the start, so that the first second is no better than others.
  wander_ns_ = std::normal_distribution<double>(0, noise.wander_ns)(random_);
  common_ns_ = std::normal_distribution<double>(0, noise.common_wander_ns)(common_random_);
}

// Ornstein and Uhlenbeck's process, by the millisecond.
void SimStamps::Wander(double true_s) {
  constexpr double kStepS = 1e-3;
  const double pull = kStepS / noise_.wander_tau_s;
  for (; wandered_until_s_ < true_s; wandered_until_s_ += kStepS) {
    const double kick = std::sqrt(2 * pull);
    wander_ns_ += std::normal_distribution<double>(0, kick * noise_.wander_ns)(random_) - pull * wander_ns_;
    common_ns_ +=
        std::normal_distribution<double>(0, kick * noise_.common_wander_ns)(common_random_) - pull * common_ns_;
    if (noise_.shift_ns != 0 && Uniform() < kStepS / noise_.shift_every_s) shifted_ = !shifted_;
  }
}

double SimStamps::DelayNs(double true_s, bool first_of_burst) {
  Wander(true_s);
  double d = base_ns_ + wander_ns_ + common_ns_ - (shifted_ ? noise_.shift_ns : 0);
  d += std::abs(std::normal_distribution<double>(0, noise_.normal_ns)(random_)) + Exponential(noise_.exponential_ns);
  if (Uniform() < noise_.busy_share) d += Exponential(noise_.busy_ns);
  if (Uniform() < noise_.early_share) d -= Exponential(noise_.early_ns);
  if (first_of_burst) d += noise_.first_ns;
  if (noise_.batch_share > 0) {  // pauses follow each other; whoever comes in one is stamped when it ends
    const double arrives_ns = true_s * 1e9 + d;
    while (pause_to_ns_ < arrives_ns) {
      pause_from_ns_ = pause_to_ns_ + Exponential(noise_.batch_ns * (1 / noise_.batch_share - 1));
      pause_to_ns_ = pause_from_ns_ + noise_.batch_ns;
    }
    if (arrives_ns > pause_from_ns_) d += pause_to_ns_ - arrives_ns;
  }
  return d;
}

}  // namespace cw::sync
