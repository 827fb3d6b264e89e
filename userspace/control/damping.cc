// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/damping.h"

#include <algorithm>
#include <cmath>

namespace cw::control {
namespace {

int64_t HoldNs(double seconds) { return std::llround(seconds * 1e9); }
double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

constexpr size_t kFlapsKept = 4096;
constexpr int kReturnSteps = 30;  // 2^30 flows: no limit

}  // namespace

double PathDamping::PenaltyAt(int64_t now_ns) const {
  const double age_s = Seconds(std::max<int64_t>(0, now_ns - penalty_ns_));
  return penalty_ * std::exp2(-age_s / rules_.half_life_s);
}

void PathDamping::Down(int64_t now_ns) {
  if (down_) return;
  penalty_ = PenaltyAt(now_ns) + rules_.penalty;
  penalty_ns_ = last_down_ns_ = now_ns;
  down_ = true;
  if (penalty_ >= rules_.suppress_above) suppressed_ = true;
}

void PathDamping::Up(int64_t now_ns) {
  if (!down_) return;
  down_ = false;
  usable_since_ns_ = ReuseAtNs(now_ns);
}

int64_t PathDamping::ReuseAtNs(int64_t now_ns) const {
  if (!suppressed_) return now_ns;
  const double decay_s = rules_.half_life_s * std::log2(std::max(1.0, penalty_ / rules_.reuse_below));
  const int64_t reuse = std::min(penalty_ns_ + HoldNs(decay_s), last_down_ns_ + HoldNs(rules_.max_suppress_s));
  return std::max(now_ns, reuse);
}

bool PathDamping::UsableAt(int64_t now_ns) {
  if (suppressed_ && ReuseAtNs(now_ns) <= now_ns) suppressed_ = false;
  return !down_ && !suppressed_;
}

int64_t PathDamping::ReturnBudget(int64_t now_ns) const {
  if (down_) return 0;
  if (usable_since_ns_ == INT64_MIN) return INT64_MAX;
  if (now_ns < usable_since_ns_) return 0;
  const double steps = Seconds(now_ns - usable_since_ns_) / rules_.return_step_s;
  return steps >= kReturnSteps ? INT64_MAX : (int64_t{1} << static_cast<int>(steps + 1)) - 1;
}

int FlapCounter::CountAt(int64_t now_ns) {
  while (!downs_ns_.empty() && now_ns - downs_ns_.front() >= rules_.flaps_window_s * 1'000'000'000) {
    downs_ns_.pop_front();
  }
  return static_cast<int>(downs_ns_.size());
}

void FlapCounter::Down(int64_t now_ns) {
  downs_ns_.push_back(now_ns);
  if (downs_ns_.size() > kFlapsKept) downs_ns_.pop_front();
}

}  // namespace cw::control
