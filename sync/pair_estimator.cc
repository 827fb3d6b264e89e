// SPDX-License-Identifier: Apache-2.0
#include "sync/pair_estimator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>

namespace cw::sync {
namespace {

constexpr int64_t kSetBackNs = 1'000'000;  // T4 falls behind by more: our clock was set back …
constexpr int kSetBackReplies = 8;         // … if so many in a row do: one may have been held up on its CPU
constexpr int64_t kRemoteAheadNs = 200'000'000;
constexpr int64_t kNewsSubWindows = 3;
constexpr int64_t kYoungNs = 120'000'000;  // a younger line is fitted to milliseconds
constexpr size_t kFitLows = 64;            // per direction
constexpr double kMatureSpanNs = 1.5e9;    // from here on things are learned
constexpr double kShiftSpanNs = 400e6;     // … and from here on how replies are shifted, …
constexpr double kJudgeSpanNs = 300e6;     // from here on a line tells whether a step led to it
constexpr double kYoungToleranceNs = 1500;
constexpr int64_t kClearlyBeforeNs = 10'000'000;
constexpr double kShiftForS = 10;             // … as a mean over so long
constexpr double kToleranceFactor = 1.5;      // × the deepest run so far
constexpr double kTellsNothingNs = 400;       // trips that took so much longer say nothing about the line
constexpr int64_t kBendReachNs = 60'000'000;  // a change is looked for so long before it showed
// The likely error: what no averaging removes, and multiples of what the line's points show.
constexpr double kErrorFloorNs = 30, kScatters = 4, kUnevens = 6, kBends = 5;
constexpr int64_t kTightenNs = 5'000'000;
constexpr double kNothing = 1e15;
constexpr double kBentSd = 3, kBentNs = 10;  // a parabola that leaves the line by more is no chance
constexpr double kLeastWindowShare = 0.2;
constexpr double kSurelyOther = 3;  // standard deviations
constexpr double kLeastOtherNs = 40;
constexpr double kForgetFirstS = 5;        // a change of rate is expected for so long at first …
constexpr double kForgetChangeS = 120;     // … and again after one was seen
constexpr double kChangeFactor = 1.5;      // the next one may be larger
constexpr double kFirstChangePpb = 100e3;  // of a clock that nobody knows yet
constexpr double kLeastChangePpb = 50;     // what a crystal's rate wanders by
constexpr double kFreeRunPpb = 1000;       // by how much a crystal strays from its last slope in the long run, likely
constexpr int64_t kSurelySeenNs = 1'200'000;  // changes younger than this are too rare to matter
constexpr double kFirstSpreadNs = 150;        // until learned
constexpr double kRttWanderNs = 300;          // the fastest round trips vary by so much without a queue
constexpr double kRttCreep = 50e-9;           // a longer path is believed so slowly

int64_t Nanoseconds(double v) { return static_cast<int64_t>(std::llround(v)); }

}  // namespace

const char* SyncStateName(SyncState state) {
  switch (state) {
    case SyncState::kUnknown:
      return "unknown";
    case SyncState::kSynchronised:
      return "synchronised";
    case SyncState::kFreeRunning:
      return "free-running";
  }
  return "unknown";
}

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

void PairEstimator::AddLocal(const Point& probe) {
  local_.Add(probe.tx_ns, probe, slope_);
  fine_local_.Add(probe.tx_ns, probe, slope_);
}

void PairEstimator::AddRemote(const Point& probe) {
  // What arrived in our future did so before our clock was set back.
  if (probe.rx_ns > std::max(newest_t4_ns_, asked_ns_) + kRemoteAheadNs) return;
  remote_.Add(probe.rx_ns, probe, -slope_);
}

void PairEstimator::AddReply(const Point& reply) {
  set_back_ = reply.rx_ns < newest_t4_ns_ - kSetBackNs ? set_back_ + 1 : 0;
  if (set_back_ >= kSetBackReplies) Forget();
  newest_t4_ns_ = std::max(newest_t4_ns_, reply.rx_ns);
  reply_.Add(reply.rx_ns, reply, -slope_);
  fine_reply_.Add(reply.rx_ns, reply, -slope_);
}

void PairEstimator::AddTrip(const Trip& trip, StampKind received) {
  switch (kind_.Admit(trip.t4_ns, received)) {
    case SeriesKind::Admission::kLeaveOut:
      return;
    case SeriesKind::Admission::kStartAnew:
      StartAnew();
      break;
    case SeriesKind::Admission::kUse:
      break;
  }
  AddReply({trip.t3_ns, trip.t4_ns});
  if (trip.t1_ns > trip.t4_ns) return;
  AddLocal({trip.t1_ns, trip.t2_ns});
  const int64_t x_ns = trip.t1_ns + (trip.t4_ns - trip.t1_ns) / 2;
  trips_.Add(x_ns, trip);
  if (line_.valid && floor_ns_ > 0) JudgeTrip(x_ns, trip);
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

void PairEstimator::AddRemoteProbe(const Trip& trip) {
  if (trip.t3_ns > std::max(newest_t4_ns_, asked_ns_) + kRemoteAheadNs) return;
  AddRemote({trip.t1_ns, trip.t2_ns});
  remote_trips_.Add(trip.t2_ns + (trip.t3_ns - trip.t2_ns) / 2, trip);
}

// No point so far is comparable with those to come. The last line goes on until there are enough of them.
void PairEstimator::StartAnew() {
  for (Envelope* e : {&local_, &remote_, &reply_, &fine_local_, &fine_reply_}) e->Clear();
  trips_.Clear();
  remote_trips_.Clear();
  since_ns_ = stepped_ns_ = 0;
  fitted_ns_ = learned_ns_ = kLongAgoNs;
  fitted_index_ = checked_index_ = suspect_ns_ = 0;
  floor_ns_ = 0;
  shift_known_ = false;
  reply_shift_ns_ = 0;
  ended_ = PairLine();
  judged_ = {};
  tests_ = MakeTests();
  trip_test_.depth_ns = {};
  interval_ = closed_interval_ = fitted_interval_ = end_interval_ = Interval();
}

void PairEstimator::Forget() {
  StartAnew();
  newest_t4_ns_ = asked_ns_ = kLongAgoNs;
  set_back_ = 0;
  line_ = PairLine();
  ++epoch_;
}

void PairEstimator::Reset() {
  Forget();
  slope_ = 0;
}

Clouds PairEstimator::Coarse(int64_t since_ns) const {
  Clouds clouds{Cloud{1, {}}, Cloud{-1, {}}, Cloud{-1, {}}};
  local_.CopySince(since_ns, clouds[kLocal].lows);
  remote_.CopySince(since_ns, clouds[kRemote].lows);
  reply_.CopySince(since_ns, clouds[kReply].lows);
  return clouds;
}

LineData PairEstimator::ForFit(int64_t since_ns, int64_t now_ns) const {
  const int64_t since = std::max(since_ns, now_ns - WindowNs());
  LineData data{Coarse(since), {}, {}};
  if (now_ns - since < kYoungNs + kBendReachNs) {
    fine_local_.CopySince(since, data.clouds[kLocal].lows);
    fine_reply_.CopySince(since, data.clouds[kReply].lows);
  }
  for (Cloud& c : data.clouds) Thin(c, slope_, kFitLows);
  std::vector<TripEnvelope::Low> lows;
  trips_.CopySince(since, lows);
  for (const auto& [index, x_ns, t] : lows) data.ours.push_back({x_ns, (t.OutNs() - t.BackNs()) / 2, t.RttNs()});
  remote_trips_.CopySince(since, lows);
  for (const auto& [index, x_ns, t] : lows) data.theirs.push_back({x_ns, (t.BackNs() - t.OutNs()) / 2, t.RttNs()});
  return data;
}

// A young line still moves with every fit: only what it can't follow ends it.
double PairEstimator::LeastToleranceNs() const { return line_.span_ns() < kJudgeSpanNs ? kYoungToleranceNs : 0; }

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
  test.Learn(now_ns, depth);
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
          trip_test_.Learn(now_ns, depth);
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
  const double drift = options_.max_drift_ppb * 1e-9;
  int64_t until = 0;
  for (const auto& out : clouds[kLocal].lows) {
    for (const CloudIndex c : {kRemote, kReply}) {
      for (const auto& back : clouds[c].lows) {
        const int64_t older = std::min(out.x_ns, back.x_ns);
        if (older <= until) continue;
        const double slack = drift * static_cast<double>(std::max(out.x_ns, back.x_ns) - older);
        if (static_cast<double>(out.raw_ns + back.raw_ns) + slack < 0) until = older;
      }
    }
  }
  return until;
}

// When there is news: some sub-windows, or less on a path that is probed rarely. While the line is young, each
// millisecond helps.
bool PairEstimator::RefitDue(int64_t now_ns) const {
  if (now_ns < fitted_ns_) return true;
  if (!line_.valid || line_.since_ns < since_ns_) return now_ns - fitted_ns_ >= kFineNs;
  const int64_t age = now_ns - std::max(since_ns_, now_ns - options_.window_ns);
  if (age < options_.refit_ns * 4) return now_ns - fitted_ns_ >= std::max(age / 4, kFineNs);
  if (now_ns - fitted_ns_ < options_.refit_ns) return false;
  return local_.newest_index() >= fitted_index_ + kNewsSubWindows || now_ns - fitted_ns_ >= 3 * options_.refit_ns;
}

PairLine PairEstimator::FitSince(int64_t since_ns, int64_t now_ns) const {
  LineInputs in{options_.max_slope_ppb * 1e-9, slope_};
  in.remote_fresh = !remote_.empty() && remote_.newest_x_ns() >= now_ns - options_.remote_fresh_ns;
  in.shift_known = shift_known_;
  in.reply_shift_ns = reply_shift_ns_;
  in.floor_ns = floor_ns_;
  if (line_.valid) in.last = &line_;
  PairLine line;
  if (ended_.valid && now_ns - since_ns < kYoungNs) {
    in.ended = &ended_;
    in.ended_from_ns = ended_from_ns_;
    in.ended_to_ns = ended_to_ns_;
    line = FitPairLine(ForFit(std::min(since_ns, ended_from_ns_), now_ns), in);
    in.ended = nullptr;
  }
  if (!line.bent) line = FitPairLine(ForFit(since_ns, now_ns), in);
  line.since_ns = since_ns;
  return line;
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
  const auto differ = static_cast<double>(std::llabs(line.OffsetAt(now_ns) - OffsetAt(now_ns)));
  if (!line.valid || differ < kSurelyOther * line.ScatterAt(now_ns, fine_spread_ns_) + kLeastOtherNs) {
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
  last_change_slope_ = line_.slope;
  for (auto& cloud : tests_) {
    for (RunTest& test : cloud) test.Unlearn();
  }
  trip_test_.Unlearn();
  Take(line, now_ns);
  return true;
}

void PairEstimator::Take(const PairLine& line, int64_t now_ns) {
  const bool had = line_.valid;
  const int64_t before = OffsetAt(now_ns);
  line_ = line;
  slope_ = line.slope;
  Tighten(now_ns);
  if (had && IsStep(OffsetAt(now_ns) - before)) {
    ++epoch_;
    end_interval_ = Interval();
  }
  JudgeEnd();
  fitted_interval_ = interval_;
  fitted_ns_ = now_ns;
}

void PairEstimator::Refit(int64_t now_ns) {
  fitted_ns_ = now_ns;
  fitted_index_ = local_.newest_index();
  if (line_.valid && line_.since_ns >= since_ns_) {
    if (const int64_t broken = BrokenAt(now_ns, /*coarse=*/true); broken > 0 && TryFrom(broken, now_ns)) return;
  }
  Tighten(now_ns);
  if (interval_.contradiction && !interval_.Open() && line_.valid) {
    since_ns_ = std::max(since_ns_, ContradictedUntil(Coarse(std::max(since_ns_, now_ns - options_.window_ns))) + 1);
    stepped_ns_ = since_ns_;
    ended_ = PairLine();
  }
  const PairLine line = FitSince(since_ns_, now_ns);
  if (!line.valid) return;  // the last line goes on
  Take(line, now_ns);
  Learn(now_ns);
}

// What the estimator knows of the path and the clocks, as far as this line shows it.
void PairEstimator::Learn(int64_t now_ns) {
  const double elapsed_s = learned_ns_ == kLongAgoNs ? 0 : static_cast<double>(now_ns - learned_ns_) * 1e-9;
  const bool first = learned_ns_ == kLongAgoNs;
  learned_ns_ = now_ns;
  if (first) {
    change_ppb_ = kFirstChangePpb;
    least_rtt_ns_ = line_.rtt_ns;
    spread_ns_ = fine_spread_ns_ = kFirstSpreadNs;
  }
  least_rtt_ns_ = std::min(line_.rtt_ns, least_rtt_ns_ + kRttCreep * elapsed_s * 1e9);
  change_ppb_ =
      std::max(kLeastChangePpb, change_ppb_ * std::exp(-elapsed_s / (change_seen_ ? kForgetChangeS : kForgetFirstS)));
  const double span = line_.span_ns();
  if (span > 100e6) {
    const double change = kChangeFactor * std::abs(line_.slope - last_change_slope_) * 1e9;
    if (last_change_slope_ != 0 && (!change_seen_ || change > change_ppb_)) {
      change_ppb_ = change;
      change_seen_ = true;
    }
    last_change_slope_ = 0;
  }
  if (span > kShiftSpanNs && line_.shift_seen) {
    const double shift_gain = shift_known_ ? std::clamp(elapsed_s / shift_for_s_, 0.0, 1.0) : 1.0;
    reply_shift_ns_ += shift_gain * (line_.shift_ns - reply_shift_ns_);
    shift_for_s_ = std::min(kShiftForS, shift_for_s_ + elapsed_s);
    shift_known_ = true;
  }
  if (span < kMatureSpanNs) return;
  const double gain = std::min(1.0, elapsed_s / 5);
  spread_ns_ += gain * (line_.spread_both_ns - spread_ns_);
  uneven_ns_ += gain * (line_.uneven_ns - uneven_ns_);
  bend_ns_ += gain * (std::max(0.0, line_.bend_ns - line_.bend_sd_ns) - bend_ns_);
  const bool bent = line_.bend_ns > kBentSd * line_.bend_sd_ns + kBentNs;
  window_share_ = std::clamp(window_share_ * (bent ? 0.8 : 1.03), kLeastWindowShare, 1.0);
  floor_ns_ = std::min(line_.rtt_ns, least_rtt_ns_ + kRttWanderNs) / 2;
}

bool PairEstimator::Interval::Open() const { return low_ns == -kNothing || high_ns == kNothing; }

bool PairEstimator::Interval::Apart(const Interval& other, double slack_ns) const {
  const auto shift = static_cast<double>(other.base_ns - base_ns);
  return shift + other.low_ns > high_ns + slack_ns || shift + other.high_ns < low_ns - slack_ns;
}

// Queues that come and go move the line too, by as much as they delay. A jump is a step only where what was possible by
// the points of the last line and what is possible now have nothing in common.
bool PairEstimator::IsStep(int64_t jump_ns) const {
  if (std::llabs(jump_ns) <= options_.step_ns) return false;
  const Interval &was = fitted_interval_, &is = interval_;
  if (was.Open() || is.Open()) return false;  // a direction is missing: JudgeEnd will tell
  if (was.contradiction || is.contradiction) return true;
  return was.Apart(is, options_.max_drift_ppb * 1e-9 * std::abs(static_cast<double>(is.at_ns - was.at_ns)));
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
  const double drift = options_.max_drift_ppb * 1e-9;
  const int64_t offset_ns = OffsetAt(at_ns);
  double high = kNothing, low = -kNothing;
  const auto tighten = [&](const Cloud& c) {
    for (const auto& p : c.lows) {
      if (p.x_ns >= to_ns) break;
      const double slack = drift * std::abs(static_cast<double>(at_ns - p.x_ns));
      const auto gap = static_cast<double>(c.sign * p.raw_ns - offset_ns);
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
  const double drift = options_.max_drift_ppb * 1e-9;
  const int64_t offset_ns = OffsetAt(now_ns);
  const double strayed = drift * std::abs(static_cast<double>(now_ns - interval_.at_ns));
  const auto moved = static_cast<double>(interval_.base_ns - offset_ns);
  double high = interval_.high_ns + moved + strayed, low = interval_.low_ns + moved - strayed;
  for (const auto& [envelope, sign] : {std::pair{&local_, 1}, std::pair{&remote_, -1}, std::pair{&reply_, -1}}) {
    envelope->CopyNewest(4, newest_);
    for (const auto& p : newest_) {
      if (p.x_ns < stepped_ns_) continue;
      const double slack = drift * std::abs(static_cast<double>(now_ns - p.x_ns));
      const auto gap = static_cast<double>(sign * p.raw_ns - offset_ns);
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

// The line's level and slope are means over its points, so the error grows with the distance from their middle.
double PairEstimator::LikelyErrorAt(int64_t now_ns) const {
  const double scatter = line_.ScatterAt(now_ns, spread_ns_);
  const double queue = std::max(0.0, line_.rtt_ns - least_rtt_ns_ - kRttWanderNs) / 2;
  return kErrorFloorNs + kScatters * scatter + kUnevens * uneven_ns_ + kBends * bend_ns_ + queue +
         RecentErrorAt(now_ns);
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
      if (std::abs(height) < 2 * fine_spread_ns_) age = std::min(age, seen);
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

Estimate PairEstimator::At(int64_t now_ns) {
  asked_ns_ = now_ns;
  const bool current = line_.valid && line_.since_ns >= since_ns_;
  const int64_t newest = fine_local_.newest_index() + fine_reply_.newest_index();
  if (current && newest != checked_index_) {
    checked_index_ = newest;
    const int64_t broken = BrokenAt(now_ns, /*coarse=*/false);
    if (broken == 0) suspect_ns_ = 0;
    if (broken != 0 && suspect_ns_ == 0) suspect_ns_ = broken;
    if (suspect_ns_ != 0) TryFrom(suspect_ns_, now_ns);
  }
  const bool due = RefitDue(now_ns);
  if (due) Refit(now_ns);
  Estimate e;
  e.epoch = epoch_;
  if (!line_.valid) return e;
  if (std::llabs(now_ns - interval_.at_ns) >= kTightenNs) TightenByNewest(now_ns);
  e.offset_ns = OffsetAt(now_ns);
  // Since the interval was taken the clocks may have drifted one way while the line went the other.
  const double since_interval = std::abs(static_cast<double>(now_ns - interval_.at_ns));
  const double strayed = (options_.max_drift_ppb * 1e-9 + std::abs(line_.slope)) * since_interval;
  const double low = interval_.low_ns, high = interval_.high_ns;
  e.bound_ns = Nanoseconds(std::max(std::abs(high), std::abs(low)) + std::max(0.0, low - high) + strayed);
  e.slope_ppb = line_.slope * 1e9;
  e.rate_change_ppb = change_ppb_;
  e.min_rtt_ns = Nanoseconds(line_.rtt_ns);
  const auto age = [&](const Envelope& v) { return v.empty() ? INT64_MAX / 2 : now_ns - v.newest_x_ns(); };
  e.age_ns = std::max<int64_t>(0, std::max(age(local_), std::min(age(reply_), age(remote_))));
  const bool back = age(reply_) <= options_.fresh_ns || age(remote_) <= options_.remote_fresh_ns;
  const bool fresh = age(local_) <= options_.fresh_ns && back;
  e.state = fresh ? SyncState::kSynchronised : SyncState::kFreeRunning;
  double error = LikelyErrorAt(now_ns);
  if (line_.by_reply) error += static_cast<double>(options_.reply_bias_ns);
  if (!fresh) error += kFreeRunPpb * 1e-9 * static_cast<double>(e.age_ns);
  if (interval_.contradiction) {  // a step, not found yet: look at the next chance, and do not pretend to know
    fitted_ns_ = std::min(fitted_ns_, now_ns - 3 * options_.refit_ns + kSubWindowNs);
    error = static_cast<double>(e.bound_ns);
  }
  e.error_est_ns = std::min(Nanoseconds(error), e.bound_ns);
  return e;
}

}  // namespace cw::sync
