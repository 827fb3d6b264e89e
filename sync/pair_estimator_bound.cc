// SPDX-License-Identifier: Apache-2.0
// What PairEstimator can promise: causality both ways, whatever the paths.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "sync/pair_estimator.h"
#include "sync/pair_estimator_rules.h"

namespace cw::sync {
namespace {

constexpr double kJudgeSpanNs = 300e6;   // from here on a line tells whether a step led to it
constexpr double kDriftMargin = 100e-6;  // a clock may drift so much faster than its line says

}  // namespace

bool PairEstimator::Interval::Open() const { return low_ns == -kNothing || high_ns == kNothing; }

bool PairEstimator::Interval::Apart(const Interval& other, double slack_ns) const {
  const auto shift = static_cast<double>(other.base_ns - base_ns);
  return shift + other.low_ns > high_ns + slack_ns || shift + other.high_ns < low_ns - slack_ns;
}

// Clocks that are seen to be further apart than clocks ought to be are believed.
double PairEstimator::MostDrift() const {
  return std::max(options_.max_drift_ppb * 1e-9, std::abs(slope_) + kDriftMargin);
}

double PairEstimator::SteepestLine() const {
  return std::clamp(std::abs(slope_) + kDriftMargin, options_.usual_slope_ppb * 1e-9, options_.max_slope_ppb * 1e-9);
}

// Queues that come and go move the line too, by as much as they delay. A jump is a step only where what was possible by
// the points of the last line and what is possible now have nothing in common.
bool PairEstimator::IsStep(int64_t jump_ns) const {
  if (std::llabs(jump_ns) <= options_.step_ns) return false;
  const Interval &was = fitted_interval_, &is = interval_;
  if (was.Open() || is.Open()) return false;  // a direction is missing: JudgeEnd will tell
  if (was.contradiction || is.contradiction) return true;
  return was.Apart(is, MostDrift() * std::abs(static_cast<double>(is.at_ns - was.at_ns)));
}

// A step that queues hid at first shows when the new line has seen enough: at the moment between the two lines.
void PairEstimator::JudgeEnd() {
  if (end_interval_.at_ns == kLongAgoNs || line_.span_ns() < kJudgeSpanNs) return;
  const Interval begin = IntervalAt(end_interval_.at_ns, since_ns_, INT64_MAX);
  const bool known = !begin.contradiction && !end_interval_.contradiction;
  if (known && end_interval_.Apart(begin, static_cast<double>(options_.step_ns))) ++epoch_;
  end_interval_ = Interval();
}

// The offset lies between every probe's rx − tx one way and its negative the other way, give or take what the clocks
// can have drifted since. If that leaves nothing, a clock was stepped.
PairEstimator::Interval PairEstimator::IntervalAt(int64_t at_ns, int64_t from_ns, int64_t to_ns) const {
  const double drift = MostDrift();
  const int64_t offset_ns = OffsetAt(at_ns);
  double high = kNothing, low = -kNothing;
  const auto tighten = [&](const Cloud& c) {
    for (const auto& p : c.lows) {
      if (p.x_ns >= to_ns) break;
      const double slack = drift * std::abs(static_cast<double>(at_ns - p.x_ns));
      const auto gap = static_cast<double>(c.sign * p.RawNs() - offset_ns);
      if (c.sign > 0) {
        high = std::min(high, gap + slack);
      } else {
        low = std::max(low, gap - slack);
      }
    }
  };
  Clouds clouds = Coarse(from_ns);
  for (const Cloud& c : clouds) tighten(c);
  if (at_ns - from_ns < kYoungNs) {
    fine_local_.CopySince(from_ns, clouds[kLocal].lows);
    fine_reply_.CopySince(from_ns, clouds[kReply].lows);
    tighten(clouds[kLocal]);
    tighten(clouds[kReply]);
  }
  return {at_ns, offset_ns, low, high, low > high || high == kNothing || low == -kNothing};
}

// Where one direction has no point left, what was known last goes on: clocks drift, but no faster than they may.
void PairEstimator::Tighten(int64_t now_ns) {
  interval_ = IntervalAt(now_ns, stepped_ns_, INT64_MAX);
  if (!interval_.Open()) {
    closed_interval_ = interval_;
  } else if (closed_interval_.at_ns > stepped_ns_ && !closed_interval_.contradiction) {
    const auto moved = static_cast<double>(closed_interval_.base_ns - OffsetAt(closed_interval_.at_ns));
    interval_ = closed_interval_;
    interval_.base_ns = OffsetAt(interval_.at_ns);
    interval_.low_ns += moved;
    interval_.high_ns += moved;
  }
}

// The same from the last interval and what came since: cheap.
void PairEstimator::TightenByNewest(int64_t now_ns) {
  if (interval_.Open() || interval_.contradiction) return Tighten(now_ns);
  const double drift = MostDrift();
  const int64_t offset_ns = OffsetAt(now_ns);
  const double strayed = drift * std::abs(static_cast<double>(now_ns - interval_.at_ns));
  const auto moved = static_cast<double>(interval_.base_ns - offset_ns);
  double high = interval_.high_ns + moved + strayed, low = interval_.low_ns + moved - strayed;
  for (const auto& [envelope, sign] : {std::pair{&local_, 1}, std::pair{&remote_, -1}, std::pair{&reply_, -1}}) {
    envelope->CopyNewest(4, newest_);
    for (const auto& p : newest_) {
      if (p.x_ns < stepped_ns_) continue;
      const double slack = drift * std::abs(static_cast<double>(now_ns - p.x_ns));
      const auto gap = static_cast<double>(sign * p.RawNs() - offset_ns);
      if (sign > 0) {
        high = std::min(high, gap + slack);
      } else {
        low = std::max(low, gap - slack);
      }
    }
  }
  interval_ = {now_ns, offset_ns, low, high, low > high};
  if (!interval_.contradiction) closed_interval_ = interval_;
}

}  // namespace cw::sync
