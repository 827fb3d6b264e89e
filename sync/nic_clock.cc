// SPDX-License-Identifier: Apache-2.0
#include "sync/nic_clock.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>

namespace cw::sync {
namespace {

constexpr double kLeastNoiseNs2 = 4;
constexpr double kLeastNoiseReads = 8, kNoiseReads = 200;  // remembered; at first few, because nothing is known
constexpr double kPriorReads = 4;
constexpr double kMostSquare = 12;  // of what is expected: outliers
constexpr double kLeastShare = 0.02;
constexpr double kFirstAsymmetry = 0.25, kAsymmetryWander2 = 1e-6;  // per s
constexpr double kAsymmetryUnlikely = 3;                            // log odds, beforehand
constexpr double kHuber = 2.5;
constexpr double kForgetReads = 100;  // how well a filter predicted them
constexpr double kHopeless = 30;      // log likelihood behind the best: it begins again where that is
constexpr int64_t kPeriodNs = 10'000'000'000;
constexpr double kOffSds = 6;  // beyond, so many reads in a row are a jump
constexpr int kOffReads = 4;
constexpr double kScatters = 5, kErrorFloorNs = 3;
constexpr double kSettledErrorNs = 500;
constexpr int64_t kNicSettledSpanNs = 600'000'000, kMatureSpanNs = 1'500'000'000;

}  // namespace

void NicTie::Filter::Predict(double passed_s, double wander_ppb) {
  const double t = passed_s, q = wander_ppb * wander_ppb;
  offset_ns += slope_ppb * t;
  oo += t * (2 * os + t * ss) + q * t * t * t / 3;
  os += t * ss + q * t * t / 2;
  oa += t * sa;
  ss += q * t;
  if (aa > 0) aa = std::min(aa + kAsymmetryWander2 * t, kFirstAsymmetry * kFirstAsymmetry);
}

void NicTie::Filter::Update(double innovation, double excess, double noise_ns2) {
  const double o = oo + excess * oa, s = os + excess * sa, a = oa + excess * aa;
  const double sum = VarianceNs2(excess) + noise_ns2;
  offset_ns += o / sum * innovation;
  slope_ppb += s / sum * innovation;
  asymmetry += a / sum * innovation;
  oo -= o * o / sum;
  os -= o * s / sum;
  oa -= o * a / sum;
  ss -= s * s / sum;
  sa -= s * a / sum;
  aa -= a * a / sum;
}

double NicTie::Filter::OffsetVarianceNs2(double ahead_s, double wander_ppb) const {
  Filter later = *this;
  later.Predict(ahead_s, wander_ppb);
  return std::max(0.0, later.oo);
}

// Until reads have shown their noise, it may be anything that fits into their width.
void NicTie::Noise::Begin(double width_ns) {
  *this = Noise();
  still_ns2 = std::max(kLeastNoiseNs2, width_ns * width_ns / 12);
  n = kPriorReads;
  y = kPriorReads * still_ns2;
}

void NicTie::Noise::Learn(const Seen& read, double asymmetry) {
  const Seen before = last[1], middle = last[0];
  last = {read, middle};
  ++seen;
  if (skip > 0) {
    --skip;
    return;
  }
  const double place = static_cast<double>(middle.x_ns - before.x_ns) / static_cast<double>(read.x_ns - before.x_ns);
  const double weights[] = {1 - place, -1, place};
  double off = 0, ones = 0, parts = 0;
  size_t i = 0;
  for (const Seen* s : {&before, &middle, &read}) {
    const double weight = weights[i++];
    off += weight * (s->offset_ns - asymmetry * s->excess_ns);
    ones += weight * weight;
    parts += weight * weight * s->excess_ns * s->excess_ns / 4;
  }
  const double expected = ones * still_ns2 + share * parts;
  const double square = std::min(off * off, kMostSquare * expected) / ones, part = parts / ones;
  const double relative = ones * still_ns2 / expected, weight = relative * relative,
               keep = 1 - 1 / std::clamp(seen / 2.0, kLeastNoiseReads, kNoiseReads);
  n = keep * n + weight;
  g = keep * g + weight * part;
  gg = keep * gg + weight * part * part;
  y = keep * y + weight * square;
  yg = keep * yg + weight * square * part;
  // The share is believed to be 1 until reads of different lengths show another.
  const double prior = kPriorReads * still_ns2 * still_ns2;
  const double determinant = n * (gg + prior) - g * g;
  if (determinant <= 0) return;
  share = std::clamp((n * (yg + prior) - g * y) / determinant, kLeastShare, 1.0);
  still_ns2 = std::max(kLeastNoiseNs2, (y - share * g) / n);
}

void NicTie::Begin(const CrossStamp& read, bool step) {
  epoch_ += step;
  valid_ = true;
  const int64_t width = read.after_ns - read.before_ns;
  began_ns_ = x_ns_ = period_ns_ = read.before_ns + width / 2;
  base_ns_ = read.nic_ns - x_ns_;
  low_ns_ = -static_cast<double>(width - width / 2);
  high_ns_ = static_cast<double>(width / 2);
  shortest_ns_[0] = shortest_ns_[1] = static_cast<double>(width);
  noise_.Begin(static_cast<double>(width));
  for (size_t i = 0; i < kFilters; ++i) {
    filters_[i] = Filter();
    filters_[i].slope_ppb = slope_ppb_;  // a step does not change a crystal; whether it was one is not sure
    filters_[i].aa = i < kWanders ? 0 : kFirstAsymmetry * kFirstAsymmetry;
  }
  Anchor(0, options_.max_slope_ppb * options_.max_slope_ppb);
  Mix();
}

// The line begins again at this offset.
void NicTie::Anchor(double offset_ns, double slope_variance) {
  off_ = 0;
  noise_.skip = 2;  // across the jump
  for (Filter& f : filters_) {
    f.offset_ns = offset_ns;
    f.oo = noise_.still_ns2;
    f.os = f.oa = f.sa = 0;
    f.ss = std::min(f.ss + slope_variance, options_.max_slope_ppb * options_.max_slope_ppb);
    f.log_weight = 0;
  }
}

// No drift leads from where the offset was to where this read says that it is.
bool NicTie::Contradicts(const CrossStamp& read, double passed_s) const {
  const double strayed = options_.max_drift_ppb * passed_s;
  const auto low = static_cast<double>(read.nic_ns - read.after_ns - base_ns_);
  const auto high = static_cast<double>(read.nic_ns - read.before_ns - base_ns_);
  return low > high_ns_ + strayed || high < low_ns_ - strayed;
}

// What this read took longer than the fastest of late.
double NicTie::Excess(int64_t x_ns, double width_ns) {
  if (x_ns - period_ns_ >= kPeriodNs) {
    period_ns_ = x_ns;
    shortest_ns_[1] = shortest_ns_[0];
    shortest_ns_[0] = width_ns;
  }
  shortest_ns_[0] = std::min(shortest_ns_[0], width_ns);
  return width_ns - std::min(shortest_ns_[0], shortest_ns_[1]);
}

// Several reads in a row that even the filter that expects most did not expect: a clock jumped by less than the bound
// shows, or its rate did.
bool NicTie::Jumped(double innovation, double sd, double passed_s, double offset_ns) {
  const int sign = innovation > kOffSds * sd ? 1 : innovation < -kOffSds * sd ? -1 : 0;
  if (sign == 0 || sign * off_ < 0) off_ = 0;
  off_for_s_ = off_ == 0 ? passed_s : off_for_s_ + passed_s;
  off_ += sign;
  if (std::abs(off_) < kOffReads) return false;
  const double rate = innovation / off_for_s_;
  Anchor(offset_ns, rate * rate);
  epoch_ += std::abs(innovation) > static_cast<double>(options_.step_ns);
  return true;
}

void NicTie::Add(const CrossStamp& read) {
  const int64_t width = read.after_ns - read.before_ns, x_ns = read.before_ns + width / 2;
  if (width < 0) return;  // the host's clock was set back meanwhile
  if (!valid_ || x_ns < x_ns_) return Begin(read, valid_);
  if (x_ns == x_ns_) return;
  const double passed_s = static_cast<double>(x_ns - x_ns_) * 1e-9;
  if (Contradicts(read, passed_s)) return Begin(read, true);
  x_ns_ = x_ns;
  const double strayed = options_.max_drift_ppb * passed_s;
  low_ns_ = std::max(low_ns_ - strayed, static_cast<double>(read.nic_ns - read.after_ns - base_ns_));
  high_ns_ = std::min(high_ns_ + strayed, static_cast<double>(read.nic_ns - read.before_ns - base_ns_));
  for (size_t i = 0; i < kFilters; ++i) filters_[i].Predict(passed_s, kWanderPpb[i % kWanders]);
  const auto offset_ns = static_cast<double>(read.nic_ns - x_ns - base_ns_);
  const double excess = Excess(x_ns, static_cast<double>(width));
  const Filter& agile = filters_[kWanders - 1];
  const double sd = std::sqrt(agile.VarianceNs2(excess) + noise_.Of(excess));
  if (!Jumped(agile.Innovation(offset_ns, excess), sd, passed_s, offset_ns)) Follow(offset_ns, excess);
  Mix();
  noise_.Learn({x_ns, offset_ns, excess}, asymmetry_);
}

void NicTie::Follow(double offset_ns, double excess) {
  const double noise = noise_.Of(excess);
  for (Filter& f : filters_) {
    const double innovation = f.Innovation(offset_ns, excess), variance = f.VarianceNs2(excess);
    const double off = std::abs(innovation) / std::sqrt(variance + noise), capped = std::min(off, kHuber);
    const double loss = capped * (off - capped / 2);
    f.log_weight = (1 - 1 / kForgetReads) * f.log_weight - loss - std::log(variance + noise) / 2;
    f.Update(innovation, excess, off > kHuber ? noise * off / kHuber : noise);
  }
  Revive(0);
  Revive(kWanders);
}

// A filter of these that has not expected what came begins again where the best of them is.
void NicTie::Revive(size_t from) {
  const auto first = filters_.begin() + static_cast<std::ptrdiff_t>(from), last = first + kWanders;
  const Filter best =
      *std::max_element(first, last, [](const Filter& a, const Filter& b) { return a.log_weight < b.log_weight; });
  for (auto f = first; f != last; ++f) {
    if (best.log_weight - f->log_weight < kHopeless) continue;
    *f = best;
    f->log_weight -= kHopeless / 2;
  }
}

void NicTie::Mix() {
  double most = -HUGE_VAL, sum = 0;
  for (size_t i = 0; i < kFilters; ++i) {
    shares_[i] = filters_[i].log_weight - (i < kWanders ? 0 : kAsymmetryUnlikely);
    most = std::max(most, shares_[i]);
  }
  for (double& s : shares_) sum += s = std::exp(s - most);
  offset_ns_ = slope_ppb_ = asymmetry_ = 0;
  for (size_t i = 0; i < kFilters; ++i) {
    shares_[i] /= sum;
    offset_ns_ += shares_[i] * filters_[i].offset_ns;
    slope_ppb_ += shares_[i] * filters_[i].slope_ppb;
    asymmetry_ += shares_[i] * filters_[i].asymmetry;
  }
}

Estimate NicTie::At(int64_t host_ns) const {
  Estimate e;
  e.epoch = epoch_;
  if (!valid_) return e;
  const double ahead_s = std::max(0.0, static_cast<double>(host_ns - x_ns_) * 1e-9);
  double variance = 0, slope_variance = 0, wander = 0;
  for (size_t i = 0; i < kFilters; ++i) {
    const Filter& f = filters_[i];
    const double off = f.offset_ns + f.slope_ppb * ahead_s - offset_ns_ - slope_ppb_ * ahead_s;
    const double slope_off = f.slope_ppb - slope_ppb_;
    variance += shares_[i] * (f.OffsetVarianceNs2(ahead_s, kWanderPpb[i % kWanders]) + off * off);
    slope_variance += shares_[i] * (std::max(0.0, f.ss) + slope_off * slope_off);
    wander += shares_[i] * kWanderPpb[i % kWanders];
  }
  const double sd = std::sqrt(variance);
  e.offset_ns = OffsetAt(host_ns);
  e.slope_ppb = slope_ppb_;
  e.slope_error_ppb = std::sqrt(slope_variance);
  e.rate_change_ppb = kScatters * wander;
  e.age_ns = std::max<int64_t>(0, host_ns - x_ns_);
  e.state = e.age_ns <= options_.fresh_ns ? SyncState::kSynchronised : SyncState::kFreeRunning;
  e.min_rtt_ns = std::llround(std::min(shortest_ns_[0], shortest_ns_[1]));
  const double strayed =
      (options_.max_drift_ppb + std::abs(slope_ppb_)) * std::abs(static_cast<double>(host_ns - x_ns_)) * 1e-9;
  e.bound_ns = std::llround(std::max({high_ns_ - offset_ns_, offset_ns_ - low_ns_, 0.0}) + strayed) + 1;
  e.error_est_ns = std::min<int64_t>(e.bound_ns, std::llround(kErrorFloorNs + kScatters * sd));
  const int64_t span = x_ns_ - began_ns_;
  e.settled = span >= kMatureSpanNs || (span >= kNicSettledSpanNs && kScatters * sd < kSettledErrorNs);
  return e;
}

int64_t NicTie::OffsetAt(int64_t host_ns) const {
  return base_ns_ + std::llround(offset_ns_ + slope_ppb_ * 1e-9 * static_cast<double>(host_ns - x_ns_));
}

int64_t NicTie::ToHostNs(int64_t nic_ns) const {
  int64_t host_ns = nic_ns - base_ns_ - std::llround(offset_ns_);
  // The line is nearly flat (ppm): each turn shrinks the error ten-thousandfold.
  for (int i = 0; i < 3; ++i) host_ns = nic_ns - OffsetAt(host_ns);
  return host_ns;
}

}  // namespace cw::sync
