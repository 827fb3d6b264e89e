// SPDX-License-Identifier: Apache-2.0
// How PairEstimator notices that a line has ended: a clock was stepped, or its rate changed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>

#include "sync/pair_estimator.h"
#include "sync/pair_estimator_rules.h"

namespace cw::sync {
namespace {

constexpr double kYoungSlope = 1e-5;
constexpr int64_t kClearlyBeforeNs = 10'000'000;
constexpr double kToleranceFactor = 1.5;  // × the deepest run so far
constexpr double kTellsNothingNs = 400;   // trips that took so much longer say nothing about the line
constexpr double kNearNs = 150;           // so near its line lies an undisturbed point of a millisecond
constexpr double kSurelyOther = 3;        // standard deviations
constexpr double kLeastOtherNs = 100, kLooseNs = 500, kBendLows = 4;
constexpr int64_t kSurelySeenNs = 800'000;  // changes younger than this are too rare to matter
constexpr double kStampNoiseNs = 2000;      // what stamps scatter by; tolerances are made for that
constexpr size_t kNoiseTrips = 64;          // needed to tell …
constexpr int kNoisyTurns = 8;              // … so many times: a queue may hide all fast trips for a while
constexpr size_t kFewFastest = 6, kFastestShare = 16;
constexpr double kNoisyTolerance = 1, kNoisyOther = 4;
constexpr double kMedianToSd = 1.21;  // of a point beside the line through its neighbours

}  // namespace

void PairEstimator::RunTest::Learn(int64_t now_ns, double depth) {
  const int64_t now_second = now_ns / 1'000'000'000;
  const auto size = static_cast<int64_t>(depth_ns.size());
  for (int64_t s = std::max(second + 1, now_second - size + 1); s <= now_second; ++s) depth_ns[s % size] = 0;
  second = now_second;
  double& deepest = depth_ns[static_cast<size_t>(now_second % size)];
  deepest = std::max(deepest, depth);
}

void PairEstimator::RunTest::Unlearn() {
  for (int64_t s = second - 1; s <= second; ++s)
    depth_ns[static_cast<size_t>(std::max<int64_t>(0, s)) % depth_ns.size()] = 0;
}

double PairEstimator::RunTest::ToleranceNs() const {
  double deepest = 0;
  for (size_t i = 0; i < depth_ns.size(); ++i) {
    if (i != static_cast<size_t>(second) % depth_ns.size()) deepest = std::max(deepest, depth_ns[i]);
  }
  return std::max(least_ns, kToleranceFactor * deepest);
}

// For each cloud: two, and four of six, of the finest lows; five of eight sub-windows.
std::array<std::array<PairEstimator::RunTest, PairEstimator::kTests>, kClouds> PairEstimator::MakeTests() {
  std::array<RunTest, kTests> tests{RunTest{2, 2, 150}, RunTest{6, 4, 90}, RunTest{8, 5, 60}};
  return {tests, tests, tests};
}

// A trip's midpoint is off by no more than half of what the trip took longer than the fastest.
void PairEstimator::JudgeTrip(int64_t x_ns, const Trip& trip) {
  const auto off = static_cast<double>((trip.OutNs() - trip.BackNs()) / 2 - OffsetAt(x_ns)) - reply_shift_ns_ / 2;
  const double excess = std::abs(static_cast<double>(trip.RttNs()) + reply_shift_ns_ - 2 * floor_ns_) / 2;
  const double depth = std::abs(off) - excess;
  if (depth < -kTellsNothingNs) return;
  std::rotate(judged_.begin(), judged_.end() - 1, judged_.end());
  judged_[0] = {x_ns, {off - excess, -off - excess}};
}

// By how much midpoints lie beside the lines through their neighbours: neither the offset nor the rate matters, nor a
// change of it.
double PairEstimator::BesideNeighboursNs(const std::vector<TripEnvelope::Low>& trips, int64_t most_rtt_ns) const {
  std::vector<double> x, y, off;
  for (const auto& low : trips) {
    if (low.item.RttNs() > most_rtt_ns) continue;
    const auto twice = [](const Trip& t) { return t.OutNs() - t.BackNs(); };
    x.push_back(static_cast<double>(low.x_ns - trips[0].x_ns));
    y.push_back(static_cast<double>(twice(low.item) - twice(trips[0].item)) / 2);
  }
  for (size_t i = 1; i + 1 < x.size(); ++i) {
    const double before = x[i] - x[i - 1], after = x[i + 1] - x[i];
    off.push_back(std::abs(y[i] - (y[i - 1] * after + y[i + 1] * before) / (before + after)));
  }
  if (off.empty()) return 0;
  std::nth_element(off.begin(), off.begin() + static_cast<std::ptrdiff_t>(off.size() / 2), off.end());
  return kMedianToSd * off[off.size() / 2];
}

// On a machine whose processor is emulated, or loses it to others, even the fastest trips scatter by tens of
// microseconds; lines that are held to stamps' noise there would end all the time. Where only queues make trips slow,
// the fastest are as good as ever, and lines rest on those. The slower half hardly counts in either.
void PairEstimator::MeasureNoise(int64_t now_ns) {
  std::vector<TripEnvelope::Low> lows;
  trips_.CopySince(now_ns - options_.window_ns, lows);  // a step is one point of many
  if (lows.size() < kNoiseTrips) return;
  std::vector<int64_t> rtts;
  for (const auto& low : lows) rtts.push_back(low.item.RttNs());
  std::sort(rtts.begin(), rtts.end());
  const bool noisy = BesideNeighboursNs(lows, rtts[std::max(kFewFastest, rtts.size() / kFastestShare)]) > kStampNoiseNs;
  noisy_turns_ = noisy ? std::min(noisy_turns_ + 1, 2 * kNoisyTurns) : std::max(noisy_turns_ - 1, 0);
  noise_ns_ = noisy_turns_ >= kNoisyTurns ? BesideNeighboursNs(lows, rtts[rtts.size() / 2]) : 0;
  const int windows = noise_ns_ > 0 ? kNoisyWindows * kSubWindows : kSubWindows;
  trips_.Keep(windows);
  remote_trips_.Keep(windows);
}

// A young line still moves with every fit: only what it can't follow ends it. And before a clock's rate was ever known,
// nothing but a contradiction does.
double PairEstimator::LeastToleranceNs() const {
  if (!slope_known_) return kNothing;
  const double young = line_.span_ns() < kSettledSpanNs ? kYoungToleranceNs + kYoungSlope * line_.span_ns() : 0;
  return young + kNoisyTolerance * noise_ns_;
}

// Where the newest points, newest first, begin to contradict the line; 0: they do not.
int64_t PairEstimator::BrokenBy(RunTest& test, CloudIndex index, const std::vector<Envelope::Low>& newest,
                                int64_t now_ns) {
  const Cloud sign{index == kLocal ? 1 : -1, {}};
  std::array<double, 8> depths{};
  size_t n = 0;
  int64_t first = 0;
  const double tolerance = std::max(test.ToleranceNs(), LeastToleranceNs());
  for (const auto& low : newest) {
    if (n == test.of || low.x_ns < since_ns_) break;
    depths[n] = -line_.HeightNs(sign, index, low);
    if (depths[n++] > tolerance / 2) first = low.x_ns;
  }
  if (n < test.of) return 0;
  std::nth_element(depths.begin(), depths.begin() + static_cast<std::ptrdiff_t>(test.deep - 1),
                   depths.begin() + static_cast<std::ptrdiff_t>(n), std::greater<>());
  const double depth = depths[test.deep - 1];
  if (depth > tolerance) return first;
  if (line_.span_ns() > kSettledSpanNs) test.Learn(now_ns, depth);
  return 0;
}

int64_t PairEstimator::BrokenAt(int64_t now_ns, bool coarse) {
  int64_t broken = 0;
  std::vector<Envelope::Low>& newest = newest_;
  const auto test = [&](const Envelope& envelope, CloudIndex index, int first, int last) {
    envelope.CopyNewest(8, newest);
    for (int t = first; t < last; ++t) {
      broken = std::max(broken, BrokenBy(tests_[index][t], index, newest, now_ns));
    }
  };
  if (coarse) {
    test(local_, kLocal, 2, 3);
    test(reply_, kReply, 2, 3);
    if (!line_.by_reply) test(remote_, kRemote, 0, 3);
  } else {
    if (judged_.back().x_ns > since_ns_) {
      for (int way = 0; way < 2; ++way) {
        double depth = HUGE_VAL;
        for (const Judged& j : judged_) depth = std::min(depth, j.depth_ns[way]);
        if (depth > std::max(trip_test_.ToleranceNs(), LeastToleranceNs())) {
          broken = std::max(broken, judged_.back().x_ns);
        } else {
          if (line_.span_ns() > kSettledSpanNs) trip_test_.Learn(now_ns, depth);
        }
      }
    }
    test(fine_local_, kLocal, 0, 2);
    test(fine_reply_, kReply, 0, 2);
  }
  return broken;
}

// Two probes in opposite directions take a positive time together. Where they do not, even if the clocks drifted as
// fast as they may, a clock was stepped between them: points up to the older of the two are of another time. 0 =
// nowhere.
int64_t PairEstimator::ContradictedUntil(const Clouds& clouds) const {
  const double drift = MostDrift();
  int64_t until = 0;
  for (const auto& out : clouds[kLocal].lows) {
    for (const CloudIndex c : {kRemote, kReply}) {
      for (const auto& back : clouds[c].lows) {
        const int64_t older = std::min(out.x_ns, back.x_ns);
        if (older <= until) continue;
        const double slack = drift * static_cast<double>(std::max(out.x_ns, back.x_ns) - older);
        if (static_cast<double>(out.RawNs() + back.RawNs()) + slack < 0) until = older;
      }
    }
  }
  return until;
}

// A line through the newest points alone takes over if the two differ by more than the new one's points scatter: then
// the old one has ended. What slows or hastens both directions alike does not make them differ.
bool PairEstimator::TryFrom(int64_t since_ns, int64_t now_ns) {
  const PairLine ended = ended_;
  const int64_t from = ended_from_ns_, to = ended_to_ns_, was_since = since_ns_;
  // A depth that grows as time goes by began before it was seen.
  ended_ = line_;
  ended_to_ns_ = since_ns;
  ended_from_ns_ = since_ns - std::min(kBendReachNs, 2 * (now_ns - since_ns) + 4 * kFineNs);
  since_ns_ = since_ns;
  const PairLine line = FitSince(since_ns, now_ns);
  // Where the points are: beyond them a short line says nothing.
  const int64_t at_ns = std::min(now_ns, line.origin_x_ns + static_cast<int64_t>(line.last_ns));
  const auto differ = static_cast<double>(std::llabs(line.OffsetAt(at_ns) - OffsetAt(at_ns)));
  // Without a fast trip both ways, what one way shows may be the machine's doing.
  const bool fast = line.trip_rtt_ns > 0 && line.trip_rtt_ns < least_trip_ns_ + kRttWanderNs;
  // Where all took long, a line through them is off by what one way waited longer than the other.
  const double waited = line.bent || floor_ns_ == 0 ? 0 : std::max(0.0, line.rtt_ns / 2 - floor_ns_ - kRttWanderNs);
  const double least = kSurelyOther * line.ScatterAt(at_ns, kNearNs) + kLeastOtherNs + waited +
                       kNoisyOther * noise_ns_ / std::sqrt(std::max(1.0, line.points));
  const bool enough = line.valid && (!line.bent || line.points >= kBendLows);
  if (!enough || differ < least + (fast ? 0 : kLooseNs)) {
    ended_ = ended;
    ended_from_ns_ = from;
    ended_to_ns_ = to;
    since_ns_ = was_since;
    return false;
  }
  if (end_interval_.at_ns == kLongAgoNs) end_interval_ = IntervalAt(since_ns, was_since, since_ns - kClearlyBeforeNs);
  if (!line.bent) {
    ended_ = PairLine();
    stepped_ns_ = since_ns;
  }
  suspect_ns_ = 0;
  if (line_.span_ns() > kSettledSpanNs) last_change_slope_ = line_.slope;
  for (auto& cloud : tests_) {
    for (RunTest& test : cloud) test.Unlearn();
  }
  trip_test_.Unlearn();
  Take(line, now_ns);
  return true;
}

// The rate may have changed since the last point that lay near the line, and points below it show that it has.
double PairEstimator::RecentErrorAt(int64_t now_ns) const {
  double stale = 0, depth[2] = {};
  for (const auto& [envelope, index] : {std::pair{&fine_local_, kLocal}, std::pair{&fine_reply_, kReply}}) {
    envelope->CopyNewest(16, newest_);
    const Cloud sign{index == kLocal ? 1 : -1, {}};
    double age = kNothing;
    for (size_t i = 0; i < newest_.size(); ++i) {
      const double height = line_.HeightNs(sign, index, newest_[i]);
      const auto seen = static_cast<double>(now_ns - newest_[i].x_ns);
      if (std::abs(height) < 2 * kNearNs) age = std::min(age, seen);
      double& deepest = depth[index == kLocal ? 0 : 1];
      if (i < 4) deepest = std::max(deepest, -height);
    }
    if (age == kNothing) age = newest_.empty() ? 0 : static_cast<double>(now_ns - newest_.back().x_ns);
    stale = std::max(stale, age);
  }
  const double unseen = std::max(0.0, stale - static_cast<double>(kSurelySeenNs));
  const double usual = std::max(tests_[kLocal][0].ToleranceNs(), tests_[kReply][0].ToleranceNs()) / kToleranceFactor;
  return change_ppb_ * 1e-9 * unseen + 2 * std::max(0.0, std::abs(depth[0] - depth[1]) - usual);
}

}  // namespace cw::sync
