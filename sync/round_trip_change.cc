// SPDX-License-Identifier: Apache-2.0
#include "sync/round_trip_change.h"

#include <algorithm>
#include <cmath>

namespace cw::sync {
namespace {

constexpr int64_t kPieceNs = 1'000'000'000;
constexpr double kUsualForS = 600;  // what round trips have been for so long is the usual
constexpr double kLearnsForS = 10;  // … and at first a mean of all that was seen
constexpr double kWanderForS = 30;
constexpr double kFirstWanderNs = 100;
constexpr double kOutlierTimes = 4;  // one jump is no wandering
constexpr double kWanders = 4;
constexpr double kBendSds = 1.95;  // mean |a − 2b + c| of three alike, in their deviations

}  // namespace

void RoundTripChange::Add(int64_t now_ns, int64_t rtt_ns) {
  const int64_t piece = now_ns / kPieceNs;
  const auto rtt = static_cast<double>(rtt_ns);
  if (piece == piece_) {
    least_ns_ = std::min(least_ns_, rtt);
    return;
  }
  if (piece_ >= 0 && piece > piece_) Close();
  if (piece_ >= 0 && piece != piece_ + 1) known_ = 0;  // a gap, or a clock that was set back
  piece_ = piece;
  least_ns_ = rtt;
}

void RoundTripChange::PathsChanged() {
  if (for_s_ > 0) carried_ns_ = floor_ns_ - usual_ns_;
  known_ = 0;
  piece_ = -1;
  for_s_ = 0;
}

void RoundTripChange::Close() {
  if (known_ >= 2) LearnWander(least_ns_);
  past_ns_ = {least_ns_, past_ns_[0], past_ns_[1]};
  known_ = std::min(known_ + 1, kPieces);
  if (known_ == kPieces) Follow(*std::min_element(past_ns_.begin(), past_ns_.end()));
}

void RoundTripChange::LearnWander(double least_ns) {
  const double bend = std::abs(least_ns - 2 * past_ns_[0] + past_ns_[1]) / kBendSds;
  const double known = wander_for_s_ > 0 ? wander_ns_ : kFirstWanderNs;
  const double seen = wander_for_s_ < kLearnsForS ? bend : std::min(bend, kOutlierTimes * known);
  wander_for_s_ = std::min(wander_for_s_ + 1, kWanderForS);
  wander_ns_ += (seen - wander_ns_) / wander_for_s_;
}

void RoundTripChange::Follow(double floor_ns) {
  floor_ns_ = floor_ns;
  if (for_s_ == 0) usual_ns_ = floor_ns - carried_ns_;
  ++for_s_;
  usual_ns_ += (floor_ns - usual_ns_) / (for_s_ < kLearnsForS && carried_ns_ == 0 ? for_s_ : kUsualForS);
}

double RoundTripChange::ChangeNs() const {
  const double change = for_s_ > 0 ? floor_ns_ - usual_ns_ : carried_ns_;
  return std::max(0.0, std::abs(change) - kWanders * std::max(wander_ns_, kFirstWanderNs / 2));
}

}  // namespace cw::sync
