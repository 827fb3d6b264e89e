// SPDX-License-Identifier: Apache-2.0
#include "sync/pair_estimator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sync/fit.h"

namespace cw::sync {
namespace {

constexpr int64_t kSetBackNs = 1'000'000;  // T4 falls behind by more: our clock was set back …
constexpr int kSetBackReplies = 8;         // … if so many in a row do: one may have been held up on its CPU
constexpr int64_t kRemoteAheadNs = 200'000'000;
constexpr size_t kBrokenSubWindows = 2;  // in a row below the line: the line has ended
constexpr int64_t kNewsSubWindows = 3;
constexpr double kLeastToleranceNs = 150;    // what stamps wander by on an idle path
constexpr double kToleranceFactor = 1.5;     // × the deepest point so far
constexpr double kTrustSlopeSpanNs = 200e6;  // a shorter window keeps the slope that was known before …
constexpr double kKeepSlopeCost = 1.3;       // … unless it fits worse than this
constexpr double kErrorFloorNs = 90;         // what averaging does not remove: paths and stamps wander
constexpr double kNothing = 1e18;
constexpr double kLeastNoiseNs = 30;
constexpr double kStepDriftPpb = 20'000;  // between two lines a clock's rate changes by less than this
constexpr double kFreeRunPpb = 1000;      // by how much a crystal strays from its last slope, likely

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

struct PairEstimator::Cloud {
  Cloud(const Envelope& envelope, int sign_in, int64_t since_ns) : sign(sign_in) { envelope.CopySince(since_ns, lows); }

  // Height of a low point above the cloud's line.
  double Height(const Line& line, int cloud, const Envelope::Low& p) const {
    const double z = static_cast<double>(p.raw_ns - sign * line.origin_y_ns);
    return z - line.level_ns[cloud] - sign * line.slope * static_cast<double>(p.x_ns - line.origin_x_ns);
  }

  int sign;  // of the offset in rx − tx
  std::vector<Envelope::Low> lows;
};

void PairEstimator::AddLocal(const Point& probe) { local_.Add(probe.tx_ns, probe, slope_); }

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
}

void PairEstimator::Forget() {
  local_.Clear();
  remote_.Clear();
  reply_.Clear();
  since_ns_ = 0;
  fitted_ns_ = newest_t4_ns_ = asked_ns_ = kLongAgoNs;
  set_back_ = 0;
  fitted_index_ = 0;
  line_ = Line();
  interval_ = fitted_interval_ = Interval();
  ++epoch_;
}

void PairEstimator::Reset() {
  Forget();
  slope_ = 0;
}

// False: too few points for a line.
bool PairEstimator::Fit(const std::vector<Cloud>& clouds, int64_t now_ns, Line& line) const {
  const auto& local = clouds[0].lows;
  const auto& remote = clouds[1].lows;
  line = Line();
  line.by_reply = remote.size() < kBrokenSubWindows || remote.back().x_ns < now_ns - options_.remote_fresh_ns;
  const auto& back = line.by_reply ? clouds[2].lows : remote;
  if (local.size() < kBrokenSubWindows || back.size() < kBrokenSubWindows) return false;
  line.origin_x_ns = local.back().x_ns;
  line.origin_y_ns = local.back().raw_ns;
  std::vector<Series> series;
  for (const Cloud& c : clouds) {
    Series s{c.sign, {}, {}};
    for (const auto& p : c.lows) {
      s.x.push_back(static_cast<double>(p.x_ns - line.origin_x_ns));
      s.z.push_back(static_cast<double>(p.raw_ns - c.sign * line.origin_y_ns));
    }
    if (!s.x.empty()) {
      line.first_ns = std::min(line.first_ns, s.x.front());
      line.last_ns = std::max(line.last_ns, s.x.back());
    }
    series.push_back(std::move(s));
  }
  const double most = options_.max_slope_ppb * 1e-9;
  ParallelFit fit = FitParallel(series, -most, most);
  if (line.last_ns - line.first_ns < kTrustSlopeSpanNs) {
    const ParallelFit kept = FitParallel(series, slope_, slope_);
    if (kept.cost <= kKeepSlopeCost * fit.cost + kLeastNoiseNs / 3) fit = kept;
  }
  line.valid = true;
  line.slope = fit.slope;
  line.points = static_cast<double>(std::min(local.size(), back.size()));
  for (int c = 0; c < kClouds; ++c) {
    line.level_ns[c] = fit.level[c];
    const auto& lows = clouds[c].lows;
    for (size_t i = 0; i + kBrokenSubWindows < lows.size(); ++i) {
      line.depth_ns[c] = std::max(line.depth_ns[c], -clouds[c].Height(line, c, lows[i]));
    }
  }
  return true;
}

// Where the newest points of a cloud begin to lie below its line by more than noise; 0 = nowhere.
int64_t PairEstimator::BrokenAt(const std::vector<Cloud>& clouds, const Line& line, const double* depth_ns) const {
  int64_t broken = 0;
  const double span = std::max(line.last_ns - line.first_ns, 20e6);
  for (int c = 0; c < kClouds; ++c) {
    const auto& lows = clouds[c].lows;
    const double tolerance = std::max(kLeastToleranceNs, kToleranceFactor * depth_ns[c]);
    size_t run = 0;
    for (; run < lows.size(); ++run) {
      const auto& p = lows[lows.size() - 1 - run];
      const double beyond = std::max(0.0, static_cast<double>(p.x_ns - line.origin_x_ns) - line.last_ns);
      if (clouds[c].Height(line, c, p) > -tolerance * (1 + beyond / span)) break;
    }
    if (run >= kBrokenSubWindows) broken = std::max(broken, lows[lows.size() - run].x_ns);
  }
  return broken;
}

// Two probes in opposite directions take a positive time together. Where they do not, even if the clocks drifted as
// fast as they may, a clock was stepped between them: points up to the older of the two are of another time. 0 =
// nowhere.
int64_t PairEstimator::ContradictedUntil(const std::vector<Cloud>& clouds) const {
  const double drift = options_.max_drift_ppb * 1e-9;
  int64_t until = 0;
  for (const auto& out : clouds[0].lows) {
    for (int c = 1; c < kClouds; ++c) {
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

// When there is news: some sub-windows, or less on a path that is probed rarely.
bool PairEstimator::RefitDue(int64_t now_ns) const {
  if (now_ns < fitted_ns_) return true;
  if (now_ns - fitted_ns_ < options_.refit_ns) return false;
  return local_.newest_index() >= fitted_index_ + kNewsSubWindows || now_ns - fitted_ns_ >= 3 * options_.refit_ns;
}

void PairEstimator::Refit(int64_t now_ns) {
  fitted_ns_ = now_ns;
  fitted_index_ = local_.newest_index();
  const auto clouds_since = [&](int64_t since) {
    return std::vector<Cloud>{{local_, 1, since}, {remote_, -1, since}, {reply_, -1, since}};
  };
  const int64_t oldest = now_ns - options_.window_ns;
  // First by the old line: after a pause many new points would bend a new one.
  if (line_.valid) {
    since_ns_ = std::max(since_ns_, BrokenAt(clouds_since(std::max(since_ns_, oldest)), line_, line_.depth_ns));
  }
  Tighten(now_ns);
  if (interval_.contradiction && line_.valid) {
    since_ns_ = std::max(since_ns_, ContradictedUntil(clouds_since(std::max(since_ns_, oldest))) + 1);
  }
  Line line;
  for (int tries = 0; tries < 4; ++tries) {
    const int64_t since = std::max(since_ns_, oldest);
    const auto clouds = clouds_since(since);
    if (!Fit(clouds, now_ns, line)) return;  // the last line goes on
    const int64_t broken = BrokenAt(clouds, line, line_.valid ? line_.depth_ns : line.depth_ns);
    if (broken <= since) break;
    since_ns_ = broken;
  }
  const bool had = line_.valid;
  const int64_t before = OffsetAt(now_ns);
  line_ = line;
  slope_ = line.slope;
  Tighten(now_ns);
  if (had && IsStep(OffsetAt(now_ns) - before)) ++epoch_;
  fitted_interval_ = interval_;
}

// Queues that come and go move the line too, by as much as they delay. A jump is a step only where what was possible by
// the points of the last line and what is possible now have nothing in common.
bool PairEstimator::IsStep(int64_t jump_ns) const {
  if (std::llabs(jump_ns) <= options_.step_ns) return false;
  const Interval &was = fitted_interval_, &is = interval_;
  if (was.contradiction || is.contradiction) return true;
  const double slack = kStepDriftPpb * 1e-9 * std::abs(static_cast<double>(is.at_ns - was.at_ns));
  const auto jump = static_cast<double>(jump_ns);
  return jump + is.high_ns + slack < was.low_ns || jump + is.low_ns - slack > was.high_ns;
}

int64_t PairEstimator::OffsetAt(int64_t x_ns) const {
  if (!line_.valid) return 0;
  const double level = (line_.level_ns[0] - line_.level_ns[line_.by_reply ? 2 : 1]) / 2;
  return line_.origin_y_ns + Nanoseconds(level + line_.slope * static_cast<double>(x_ns - line_.origin_x_ns));
}

// The offset lies between every probe's rx − tx one way and its negative the other way, give or take what the clocks
// can have drifted since. If that leaves nothing, a clock was stepped.
void PairEstimator::Tighten(int64_t now_ns) {
  const double drift = options_.max_drift_ppb * 1e-9;
  const int64_t offset_ns = OffsetAt(now_ns);
  double high = kNothing, low = -kNothing;
  const auto tighten = [&](const Envelope& envelope, int sign) {
    for (const auto& p : Cloud(envelope, sign, since_ns_).lows) {
      const double slack = drift * std::abs(static_cast<double>(now_ns - p.x_ns));
      const auto gap = static_cast<double>(sign * p.raw_ns - offset_ns);
      if (sign > 0) {
        high = std::min(high, gap + slack);
      } else {
        low = std::max(low, gap - slack);
      }
    }
  };
  tighten(local_, 1);
  tighten(remote_, -1);
  tighten(reply_, -1);
  interval_ = {now_ns, low, high, low > high || high == kNothing || low == -kNothing};
}

// The line's level and slope are means over its points, so the error grows with the distance from their middle.
double PairEstimator::LikelyErrorAt(int64_t now_ns) const {
  const double noise = std::max(kLeastNoiseNs, (line_.depth_ns[0] + line_.depth_ns[line_.by_reply ? 2 : 1]) / 2);
  const double centre = (line_.first_ns + line_.last_ns) / 2;
  const double span = std::max(line_.last_ns - line_.first_ns, 1e6);
  const double distance = std::abs(static_cast<double>(now_ns - line_.origin_x_ns) - centre);
  const double error = kErrorFloorNs + 2 * noise * (1 + 3.5 * distance / span) / std::sqrt(line_.points);
  return line_.by_reply ? error + static_cast<double>(options_.reply_bias_ns) : error;
}

Estimate PairEstimator::At(int64_t now_ns) {
  asked_ns_ = now_ns;
  const bool due = RefitDue(now_ns);
  if (due) Refit(now_ns);
  Estimate e;
  e.epoch = epoch_;
  if (!line_.valid) return e;
  if (due || std::llabs(now_ns - interval_.at_ns) >= Envelope::kSubWindowNs) Tighten(now_ns);
  e.offset_ns = OffsetAt(now_ns);
  // Since the interval was taken the clocks may have drifted one way while the line went the other.
  const double since_interval = std::abs(static_cast<double>(now_ns - interval_.at_ns));
  const double strayed = (options_.max_drift_ppb * 1e-9 + std::abs(line_.slope)) * since_interval;
  const double low = interval_.low_ns, high = interval_.high_ns;
  e.bound_ns = Nanoseconds(std::max(std::abs(high), std::abs(low)) + std::max(0.0, low - high) + strayed);
  e.slope_ppb = line_.slope * 1e9;
  e.min_rtt_ns = Nanoseconds(line_.level_ns[0] + line_.level_ns[line_.by_reply ? 2 : 1]);
  const auto age = [&](const Envelope& v) { return v.empty() ? INT64_MAX / 2 : now_ns - v.newest_x_ns(); };
  e.age_ns = std::max<int64_t>(0, std::max(age(local_), std::min(age(reply_), age(remote_))));
  const bool back = age(reply_) <= options_.fresh_ns || age(remote_) <= options_.remote_fresh_ns;
  const bool fresh = age(local_) <= options_.fresh_ns && back;
  e.state = fresh ? SyncState::kSynchronised : SyncState::kFreeRunning;
  double error = LikelyErrorAt(now_ns);
  if (!fresh) error += kFreeRunPpb * 1e-9 * static_cast<double>(e.age_ns);
  if (interval_.contradiction) {  // a step, not found yet: look at the next chance, and do not pretend to know
    fitted_ns_ = std::min(fitted_ns_, now_ns - 3 * options_.refit_ns + Envelope::kSubWindowNs);
    error = static_cast<double>(e.bound_ns);
  }
  e.error_est_ns = std::min(Nanoseconds(error), e.bound_ns);
  return e;
}

}  // namespace cw::sync
