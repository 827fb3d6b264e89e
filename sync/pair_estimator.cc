// SPDX-License-Identifier: Apache-2.0
#include "sync/pair_estimator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sync/pair_estimator_rules.h"

namespace cw::sync {
namespace {

constexpr int64_t kSetBackNs = 1'000'000;  // T4 falls behind by more: our clock was set back …
constexpr int kSetBackReplies = 8;         // … if so many in a row do: one may have been held up on its CPU
constexpr int64_t kRemoteAheadNs = 200'000'000;
constexpr int64_t kNewsSubWindows = 3;
constexpr size_t kFitLows = 64;          // per direction
constexpr double kMatureSpanNs = 1.5e9;  // from here on things are learned
constexpr double kShiftSpanNs = 400e6;   // … and from here on how replies are shifted, …
constexpr double kSettledErrorNs = 500;  // from here on one-way delays may be taken by the line
constexpr double kShiftSdNs = 60;
constexpr double kShiftForS = 10;  // … as a mean over so long
// The likely error: what no averaging removes, and multiples of what the line's points show.
constexpr double kErrorFloorNs = 30, kScatters = 4, kUnevens = 6, kBends = 5, kUnsettledNs = 150;
constexpr double kYoungNoiseNs = 1000;
constexpr int64_t kDoubtNs = 20'000'000;
constexpr int64_t kTightenNs = 5'000'000;
constexpr double kBentSd = 3, kBentNs = 10;  // a parabola that leaves the line by more is no chance
constexpr double kLeastWindowShare = 0.2;
constexpr double kForgetFirstS = 2;         // a change of rate is expected for so long at first …
constexpr double kForgetSeenChangeS = 120;  // … and again after one was seen
constexpr double kSlopeNoises = 4;
constexpr double kChangeFactor = 2;        // the next one may be larger
constexpr double kFirstChangePpb = 100e3;  // of a clock that nobody knows yet
constexpr double kLeastChangePpb = 50;     // what a crystal's rate wanders by
constexpr double kStrayPpb = 1000;         // by how much a crystal strays from its last slope in the long run, likely
constexpr double kFirstSpreadNs = 150;     // until learned
constexpr double kShortWindowNs = 70;      // by which a short window misses the fastest, at most
constexpr double kSingleWaysNs = 500;      // by which the fastest single ways together beat the fastest trip, at most
constexpr double kRttCreep = 50e-9;        // a longer path is believed so slowly

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
  if (began_ns_ == kLongAgoNs) began_ns_ = trip.t1_ns;
  AddReply({trip.t3_ns, trip.t4_ns});
  if (trip.t1_ns > trip.t4_ns) return;
  AddLocal({trip.t1_ns, trip.t2_ns});
  const int64_t x_ns = trip.t1_ns + (trip.t4_ns - trip.t1_ns) / 2;
  trips_.Add(x_ns, trip);
  round_trips_.Add(x_ns, trip.RttNs());
  if (line_.valid && floor_ns_ > 0) JudgeTrip(x_ns, trip);
}

void PairEstimator::AddRemoteProbe(const Trip& trip) {
  if (trip.t3_ns > std::max(newest_t4_ns_, asked_ns_) + kRemoteAheadNs) return;
  // What the peer tells may be older than our clock is, after a restart or a sleep.
  if (began_ns_ == kLongAgoNs || trip.t2_ns < began_ns_) return;
  AddRemote({trip.t1_ns, trip.t2_ns});
  remote_trips_.Add(trip.t2_ns + (trip.t3_ns - trip.t2_ns) / 2, trip);
}

// No point so far is comparable with those to come. The last line goes on until there are enough of them.
void PairEstimator::StartAnew() {
  began_ns_ = kLongAgoNs;
  for (Envelope* e : {&local_, &remote_, &reply_, &fine_local_, &fine_reply_}) e->Clear();
  trips_.Clear();
  round_trips_.Reset();
  remote_trips_.Clear();
  since_ns_ = stepped_ns_ = 0;
  fitted_ns_ = learned_ns_ = kLongAgoNs;
  fitted_index_ = checked_index_ = suspect_ns_ = 0;
  floor_ns_ = bend_floor_ns_ = least_trip_ns_ = 0;
  shift_known_ = false;
  reply_shift_ns_ = 0;
  ended_ = PairLine();
  judged_ = {};
  tests_ = MakeTests();
  trip_test_.depth_ns = {};
  noise_ns_ = noisy_turns_ = 0;
  interval_ = closed_interval_ = fitted_interval_ = end_interval_ = Interval();
}

void PairEstimator::Forget() {
  StartAnew();
  newest_t4_ns_ = asked_ns_ = kLongAgoNs;
  set_back_ = 0;
  line_ = PairLine();
  settled_ = false;
  ++epoch_;
}

void PairEstimator::Reset() {
  Forget();
  slope_ = 0;
  slope_known_ = false;
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

// When there is news: some sub-windows, or less on a path that is probed rarely. While the line is young, each
// millisecond helps.
bool PairEstimator::RefitDue(int64_t now_ns) const {
  if (now_ns < fitted_ns_) return true;
  if (!line_.valid || line_.since_ns < since_ns_) return now_ns - fitted_ns_ >= kFineNs;
  const int64_t age = now_ns - std::max(since_ns_, now_ns - options_.window_ns);
  if (age < RefitNs() * 4) return now_ns - fitted_ns_ >= std::max(age / 4, kFineNs);
  if (now_ns - fitted_ns_ < RefitNs()) return false;
  return local_.newest_index() >= fitted_index_ + kNewsSubWindows || now_ns - fitted_ns_ >= 3 * RefitNs();
}

PairLine PairEstimator::FitSince(int64_t since_ns, int64_t now_ns) const {
  LineInputs in{SteepestLine(), slope_};
  in.remote_fresh = !remote_.empty() && remote_.newest_x_ns() >= now_ns - options_.remote_fresh_ns;
  in.shift_known = shift_known_ || noise_ns_ > 0;  // noisy trips will never show it, nor does it matter there
  in.noise_ns = noise_ns_;
  in.reply_shift_ns = reply_shift_ns_;
  in.floor_ns = bend_floor_ns_ > 0 ? bend_floor_ns_ : floor_ns_;
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

void PairEstimator::Take(const PairLine& line, int64_t now_ns) {
  const bool had = line_.valid;
  const int64_t before = OffsetAt(now_ns);
  line_ = line;
  slope_ = line.slope;
  Tighten(now_ns);
  if (had && IsStep(OffsetAt(now_ns) - before)) {
    ++epoch_;
    settled_ = false;
    end_interval_ = Interval();
  }
  JudgeEnd();
  fitted_interval_ = interval_;
  fitted_ns_ = now_ns;
}

void PairEstimator::Refit(int64_t now_ns) {
  fitted_ns_ = now_ns;
  fitted_index_ = local_.newest_index();
  MeasureNoise(now_ns);
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
    spread_ns_ = kFirstSpreadNs;
  }
  const double creep = kRttCreep * elapsed_s * 1e9;
  if (line_.trip_rtt_ns > 0) {
    const double known = least_trip_ns_ > 0 ? least_trip_ns_ + creep : line_.trip_rtt_ns;
    least_trip_ns_ = std::min(line_.trip_rtt_ns, known);
  }
  if (line_.middle_sd_ns > 0) least_rtt_ns_ = std::min(line_.rtt_ns, least_rtt_ns_ + creep);
  // Lines that were wrong for a while cross; whole trips tell how short the way can be.
  if (least_trip_ns_ > 0) least_rtt_ns_ = std::max(least_rtt_ns_, least_trip_ns_ + reply_shift_ns_ - kSingleWaysNs);
  change_ppb_ = std::max(kLeastChangePpb,
                         change_ppb_ * std::exp(-elapsed_s / (change_seen_ ? kForgetSeenChangeS : kForgetFirstS)));
  const double span = line_.span_ns();
  if (span > 100e6) {
    const double noise = kSlopeNoises * line_.SlopeSd(spread_ns_);
    const double change = kChangeFactor * std::max(0.0, std::abs(line_.slope - last_change_slope_) - noise) * 1e9;
    if (last_change_slope_ != 0 && change > 0 && (!change_seen_ || change > change_ppb_)) {
      change_ppb_ = change;
      change_seen_ = true;
    }
    last_change_slope_ = 0;
  }
  // What queues did to one way would be taken for the stamps' doing.
  const bool fast = line_.slowest_rtt_ns == 0 || line_.slowest_rtt_ns < least_trip_ns_ + kRttWanderNs;
  if (span > kShiftSpanNs && line_.shift_seen && line_.shift_sd_ns < kShiftSdNs && fast) {
    const double shift_gain = shift_known_ ? std::clamp(elapsed_s / shift_for_s_, 0.0, 1.0) : 1.0;
    reply_shift_ns_ += shift_gain * (line_.shift_ns - reply_shift_ns_);
    shift_for_s_ = std::min(kShiftForS, shift_for_s_ + elapsed_s);
    shift_known_ = true;
  }
  if (span > kSettledSpanNs) {
    slope_known_ = true;
    settled_ |= kScatters * line_.ScatterAt(now_ns, spread_ns_) < kSettledErrorNs || span > kMatureSpanNs;
  }
  if (span < kMatureSpanNs) return;
  const double gain = std::min(1.0, elapsed_s / 5);
  spread_ns_ += gain * (line_.spread_both_ns - spread_ns_);
  uneven_ns_ += gain * (line_.uneven_ns - uneven_ns_);
  const double left = (1 - line_.bend_share) * line_.bend_ns + line_.bend_share * line_.bend_sd_ns;
  bend_ns_ += gain * (std::max(0.0, left - line_.bend_sd_ns) - bend_ns_);
  const bool bent = line_.bend_ns > kBentSd * line_.bend_sd_ns + kBentNs;
  const double most = noise_ns_ > 0 ? kNoisyWindows : 1;
  // A long window takes long to notice a bend: what it has left behind stays there.
  double longer = 1.03 * window_share_;
  if (noise_ns_ > 0)
    longer = std::min(longer, window_share_ + elapsed_s * 1e9 / static_cast<double>(options_.window_ns));
  window_share_ = std::clamp(bent ? 0.8 * window_share_ : longer, kLeastWindowShare, most);
  floor_ns_ = std::clamp(line_.rtt_ns, least_rtt_ns_, least_rtt_ns_ + kRttWanderNs) / 2;
  if (least_trip_ns_ > 0) floor_ns_ = std::min(floor_ns_, (least_trip_ns_ + reply_shift_ns_) / 2);
  if (line_.trip_rtt_ns > 0) {
    bend_floor_ns_ = std::min((line_.trip_rtt_ns + reply_shift_ns_) / 2, floor_ns_ + kShortWindowNs);
  }
}

// A clock that nobody knows yet may run as wrong as any, until its line is long.
double PairEstimator::UnknownSlope() const {
  if (slope_known_) return 0;
  return std::min(kFirstChangePpb * 1e-9, kYoungNoiseNs / std::max(line_.span_ns(), 1e6));
}

// The line's level and slope are means over its points, so the error grows with the distance from their middle.
double PairEstimator::LikelyErrorAt(int64_t now_ns) const {
  const double scatter = line_.ScatterAt(now_ns, spread_ns_);
  const bool trips = line_.trip_rtt_ns > 0 && least_trip_ns_ > 0;
  const double used = line_.used_rtt_ns > 0 ? line_.used_rtt_ns : line_.trip_rtt_ns;
  const double longer = trips ? used - least_trip_ns_ : line_.rtt_ns - least_rtt_ns_;
  const double queue = std::max(0.0, longer - kRttWanderNs) / 2;
  const double settled = std::min(1.0, line_.span_ns() / kSettledSpanNs / 2);
  const double unsettled = since_ns_ > 0 ? 1 - settled : 0;  // after a change, until the line is long
  const double middle = static_cast<double>(line_.origin_x_ns) + (line_.first_ns + line_.last_ns) / 2;
  const double unknown = UnknownSlope() * std::abs(static_cast<double>(now_ns) - middle);
  return kErrorFloorNs + kUnsettledNs * unsettled + kScatters * (1 + unsettled) * scatter + kUnevens * uneven_ns_ +
         kBends * bend_ns_ + queue + unknown + RecentErrorAt(now_ns);
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
    // The first doubt may have been a false one: the newest points get a chance of their own.
    if (suspect_ns_ != 0 && !TryFrom(suspect_ns_, now_ns) && broken - suspect_ns_ > kDoubtNs) {
      if (!TryFrom(broken, now_ns)) suspect_ns_ = broken;
    }
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
  const double strayed = (MostDrift() + std::abs(line_.slope)) * since_interval;
  const double low = interval_.low_ns, high = interval_.high_ns;
  e.bound_ns = Nanoseconds(std::max(std::abs(high), std::abs(low)) + std::max(0.0, low - high) + strayed);
  e.slope_ppb = line_.slope * 1e9;
  e.slope_error_ppb = (line_.SlopeSd(spread_ns_) + UnknownSlope()) * 1e9;
  e.rate_change_ppb = change_ppb_;
  e.settled = settled_;
  if (began_ns_ != kLongAgoNs) e.line_age_ns = std::max<int64_t>(0, now_ns - std::max(since_ns_, began_ns_));
  e.min_rtt_ns = Nanoseconds(line_.rtt_ns);
  e.changed_ns = Nanoseconds(round_trips_.ChangeNs() / 2);
  const auto age = [&](const Envelope& v) { return v.empty() ? INT64_MAX / 2 : now_ns - v.newest_x_ns(); };
  e.age_ns = std::max<int64_t>(0, std::max(age(local_), std::min(age(reply_), age(remote_))));
  const bool back = age(reply_) <= options_.fresh_ns || age(remote_) <= options_.remote_fresh_ns;
  const bool fresh = age(local_) <= options_.fresh_ns && back;
  e.state = fresh ? SyncState::kSynchronised : SyncState::kFreeRunning;
  double error = LikelyErrorAt(now_ns);
  if (line_.by_reply) error += static_cast<double>(options_.reply_bias_ns);
  if (!fresh) error += kStrayPpb * 1e-9 * static_cast<double>(e.age_ns);
  if (interval_.contradiction) {  // a step, not found yet: look at the next chance, and do not pretend to know
    fitted_ns_ = std::min(fitted_ns_, now_ns - 3 * RefitNs() + kSubWindowNs);
    error = static_cast<double>(e.bound_ns);
  }
  e.error_est_ns = std::min(Nanoseconds(error), e.bound_ns);
  return e;
}

}  // namespace cw::sync
