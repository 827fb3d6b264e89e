// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/path.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cw::sync::sim {
namespace {
constexpr double kSaturated = 0.97;  // load of a busy phase
}  // namespace

// Busy and quiet phases alternate so that the mean is spec_.load.
double Queue::PhaseLoad(TrueNs t) {
  if (!spec_.bursty) return spec_.load;
  const double quiet = spec_.load / 2;
  const double share = std::clamp((spec_.load - quiet) / (kSaturated - quiet), 0.0, 1.0);
  while (phase_until_ <= t) {
    busy_ = !busy_;
    const double mean_s = 2 * spec_.phase_s * (busy_ ? share : 1 - share);
    phase_until_ += 1 + static_cast<TrueNs>(random_.Exponential(mean_s) * kSecond);
  }
  return busy_ ? kSaturated : quiet;
}

double Queue::WaitNs(TrueNs t) {
  if (spec_.load <= 0) return 0;
  const double load = std::min(PhaseLoad(t), 0.99);
  const auto passed = static_cast<double>(std::max<TrueNs>(0, t - at_));
  at_ = std::max(at_, t);
  const double relax_ns = spec_.burst_ns / ((1 - load) * (1 - load));
  if (random_.Uniform() < std::exp(-passed / relax_ns)) {
    wait_ns_ = std::max(0.0, wait_ns_ - passed * (1 - load));
  } else {
    wait_ns_ = random_.Chance(load) ? random_.Exponential(spec_.burst_ns / (1 - load)) : 0;
  }
  return wait_ns_;
}

Direction::Direction(const PathSpec& spec, std::vector<std::shared_ptr<Queue>> queues, Random random)
    : spec_(spec), queues_(std::move(queues)), random_(random) {
  wander_ns_ = random_.Normal(spec_.floor_wander_ns);
}

double Direction::DelayNs(TrueNs t, double extra_ns) {
  const double passed_s = static_cast<double>(std::max<TrueNs>(0, t - at_)) / kSecond;
  at_ = std::max(at_, t);
  if (spec_.floor_wander_ns > 0) {  // Ornstein–Uhlenbeck
    const double keep = std::exp(-passed_s / spec_.floor_tau_s);
    wander_ns_ = wander_ns_ * keep + random_.Normal(spec_.floor_wander_ns * std::sqrt(1 - keep * keep));
  }
  double d = spec_.base_ns + extra_ns + wander_ns_;
  d += std::abs(random_.Normal(spec_.noise_ns)) + random_.Exponential(spec_.tail_ns);
  if (random_.Chance(spec_.busy_chance)) d += random_.Exponential(spec_.busy_ns);
  for (const auto& q : queues_) d += q->WaitNs(t);
  return std::max(d, 1.0);
}

}  // namespace cw::sync::sim
