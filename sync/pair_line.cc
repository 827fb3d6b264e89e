// SPDX-License-Identifier: Apache-2.0
#include "sync/pair_line.h"

#include <algorithm>
#include <cmath>

#include "sync/fit.h"

namespace cw::sync {
namespace {

constexpr size_t kLeastLows = 2;
constexpr size_t kShiftLows = 8;
constexpr double kTrustSlopeSpanNs = 200e6;  // a shorter window keeps the slope that was known before …
constexpr double kKeepSlopeCost = 1.3;       // … unless it fits worse than this …
constexpr double kCostNoiseNs = 10;          // … and by more than stamps scatter
constexpr double kSlopeStep = 2e-6;          // the first guess of how far the slope has moved
constexpr double kYoungSpanNs = 300e6;
constexpr size_t kMidpoints = 48;      // of a line that is not young
constexpr double kLeastExcessNs = 10;  // two round trips that differ by less are alike
constexpr double kRttWander = 150e-9;  // the fastest round trip may change by so much, ns per ns, without a queue
constexpr double kExcessQuantile = 0.1;
constexpr size_t kLeastTrips = 8;
constexpr size_t kRttTrips = 3;
constexpr int kBendPlaces = 8;   // places where a bend is tried
constexpr double kJumpNs = 400;  // a bend that leaves half of a cloud deeper: the clock jumped
constexpr double kHuber = 1.5;   // standard deviations
constexpr size_t kQuarters = 4;
constexpr double kChanceSds = 2.5;  // a parabola within so many standard deviations is chance
constexpr double kQuarterSds = 1.4, kQuarterBend = 0.375, kLeastDoubt = 2, kMostDoubt = 10, kBendNoise = 0.1,
                 kBentDoubt = 3;
constexpr double kTangentSpanNs = 1.5e9;

double QuantileOf(std::vector<double>& v, double p) {
  if (v.empty()) return 0;
  const auto k = static_cast<std::ptrdiff_t>(p * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), v.begin() + k, v.end());
  return v[static_cast<size_t>(k)];
}

// Our probes and their replies were on their way at the same times, so they and they alone decide the slope: what
// slows both directions does not tilt it. The peer's probes stand in where there are no replies.
bool Leads(const Clouds& clouds, CloudIndex c) {
  const bool replies = clouds[kReply].lows.size() >= kLeastLows;
  return c == kLocal || (c == kReply) == replies;
}

std::vector<Series> MakeSeries(const Clouds& clouds, PairLine& line) {
  std::vector<Series> series;
  for (const CloudIndex c : {kLocal, kRemote, kReply}) {
    Series s{clouds[c].sign, {}, {}, Leads(clouds, c) ? 1.0 : 0.0};
    for (const auto& p : clouds[c].lows) {
      s.x.push_back(static_cast<double>(p.x_ns - line.origin_x_ns));
      s.z.push_back(static_cast<double>(p.RawNs() - clouds[c].sign * line.origin_y_ns));
    }
    if (s.weight > 0 && !s.x.empty()) {
      line.first_ns = std::min(line.first_ns, s.x.front());
      line.last_ns = std::max(line.last_ns, s.x.back());
    }
    series.push_back(std::move(s));
  }
  return series;
}

// Level of the peer's probes above that of the replies of the same time.
void MeasureShift(const Clouds& clouds, PairLine& line) {
  const auto& remote = clouds[kRemote].lows;
  if (remote.size() < kShiftLows) return;
  std::vector<double> probes, replies;
  for (const auto& p : remote) probes.push_back(line.HeightNs(clouds[kRemote], kReply, p));
  for (const auto& p : clouds[kReply].lows) {
    const bool within = p.x_ns >= remote.front().x_ns && p.x_ns <= remote.back().x_ns;
    if (within) replies.push_back(line.HeightNs(clouds[kReply], kReply, p));
  }
  if (replies.size() < kShiftLows) return;
  line.shift_seen = true;
  line.shift_ns = QuantileOf(probes, kLowQuantile) - QuantileOf(replies, kLowQuantile);
  line.shift_sd_ns = line.ScatterAt(line.origin_x_ns, 0);
}

// Looks near the last slope first: that saves half of the work.
ParallelFit FitSlope(const std::vector<Series>& series, const LineInputs& in) {
  for (double reach = kSlopeStep; reach < in.most_slope; reach *= 16) {
    const double least = std::max(-in.most_slope, in.last_slope - reach);
    const double most = std::min(in.most_slope, in.last_slope + reach);
    ParallelFit fit = FitParallel(series, least, most);
    if (fit.slope > least + 1e-9 && fit.slope < most - 1e-9) return fit;
  }
  return FitParallel(series, -in.most_slope, in.most_slope);
}

// How far the quarters of the window lie off the line: (their low points one way − those the other way) / 2. What both
// ways share is no error.
double Uneven(const Clouds& clouds, const PairLine& line) {
  const CloudIndex back = Leads(clouds, kReply) ? kReply : kRemote;
  double sum = 0;
  for (size_t q = 0; q < kQuarters; ++q) {
    double level[2] = {};
    for (const CloudIndex c : {kLocal, back}) {
      const auto& lows = clouds[c].lows;
      std::vector<double> heights;
      for (size_t i = q * lows.size() / kQuarters; i < (q + 1) * lows.size() / kQuarters; ++i) {
        heights.push_back(line.HeightNs(clouds[c], c, lows[i]));
      }
      if (heights.empty()) return 0;
      level[c == kLocal ? 0 : 1] = QuantileOf(heights, 0.2);
    }
    const double off = (level[0] - level[1]) / 2;
    sum += off * off;
  }
  return std::sqrt(sum / kQuarters);
}

void SetLevels(const Clouds& clouds, PairLine& line) {
  for (const CloudIndex c : {kLocal, kRemote, kReply}) {
    std::vector<double> heights;
    for (const auto& p : clouds[c].lows) heights.push_back(line.HeightNs(clouds[c], c, p));
    const double level = QuantileOf(heights, kLowQuantile);
    line.level_ns[c] += level;
    line.spread_ns[c] = QuantileOf(heights, 0.3) - level;
  }
}

// A midpoint beside a rough line.
struct Weighed {
  double x, y, rtt;
  double weight = 0, given = 0;
  size_t series = 0;
};

// Without whole trips: the fastest probe and the fastest reply of the same stretch of time.
std::vector<Weighed> FromClouds(const Clouds& clouds, CloudIndex back, const PairLine& line) {
  struct Lowest {
    double height[2] = {HUGE_VAL, HUGE_VAL}, x = 0;
    int points = 0;
  };
  std::vector<Lowest> bins(kMidpoints);
  const double width = (line.span_ns() + 1) / kMidpoints;
  for (const CloudIndex c : {kLocal, back}) {
    for (const auto& p : clouds[c].lows) {
      const auto x = static_cast<double>(p.x_ns - line.origin_x_ns);
      Lowest& bin = bins[static_cast<size_t>(std::clamp((x - line.first_ns) / width, 0.0, kMidpoints - 1.0))];
      double& lowest = bin.height[c == kLocal ? 0 : 1];
      lowest = std::min(lowest, line.HeightNs(clouds[c], c, p));
      bin.x += x;
      ++bin.points;
    }
  }
  std::vector<Weighed> out;
  for (const Lowest& b : bins) {
    if (b.height[0] == HUGE_VAL || b.height[1] == HUGE_VAL) continue;
    out.push_back({b.x / b.points, (b.height[0] - b.height[1]) / 2, b.height[0] + b.height[1]});
  }
  return out;
}

void AddTrips(const std::vector<Midpoint>& trips, size_t series, const PairLine& line, std::vector<Weighed>& out) {
  for (const Midpoint& m : trips) {
    const auto x = static_cast<double>(m.x_ns - line.origin_x_ns);
    const double y = static_cast<double>(m.offset_ns - line.origin_y_ns) - line.middle_ns - line.slope * x;
    out.push_back({x, y, static_cast<double>(m.rtt_ns), 0, 0, series});
  }
}

// What a trip took longer than the fastest of its series at that time may have come on either way.
void WeighByExcess(std::vector<Weighed>& points, size_t series) {
  std::vector<Weighed*> own;
  for (Weighed& p : points) {
    if (p.series == series) own.push_back(&p);
  }
  std::vector<double> excess(own.size()), sorted;
  // Of all lines rtt + wander·|distance|, the least: one sweep each way.
  double least = HUGE_VAL, at = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    least = std::min(least + kRttWander * (own[i]->x - at), own[i]->rtt);
    at = own[i]->x;
    excess[i] = own[i]->rtt - least;
  }
  least = HUGE_VAL;
  for (size_t i = own.size(); i-- > 0;) {
    least = std::min(least + kRttWander * (at - own[i]->x), own[i]->rtt);
    at = own[i]->x;
    excess[i] = std::max(excess[i], own[i]->rtt - least);
  }
  sorted = excess;
  const double noise = std::max(kLeastExcessNs, QuantileOf(sorted, kExcessQuantile));
  for (size_t i = 0; i < own.size(); ++i)
    own[i]->given =
        1 / (noise * noise + excess[i] * excess[i]) / (noise * noise + excess[i] * excess[i]) * noise * noise;
}

// y = level + slope·(x − mean), with a level for each series, by weighted least squares.
struct WeightedLine {
  double mean[2] = {}, level[2] = {}, sum[2] = {}, slope = 0, sum_xx = 0;
  explicit WeightedLine(const std::vector<Weighed>& points) {
    double sum_xy = 0;
    for (const Weighed& p : points) {
      sum[p.series] += p.weight;
      mean[p.series] += p.weight * p.x;
      level[p.series] += p.weight * p.y;
    }
    for (int s = 0; s < 2; ++s) {
      if (sum[s] == 0) continue;
      mean[s] /= sum[s];
      level[s] /= sum[s];
    }
    for (const Weighed& p : points) {
      const double x = p.x - mean[p.series];
      sum_xx += p.weight * x * x;
      sum_xy += p.weight * x * (p.y - level[p.series]);
    }
    slope = sum_xx > 0 ? sum_xy / sum_xx : 0;
  }
  double Residual(const Weighed& p) const { return p.y - level[p.series] - slope * (p.x - mean[p.series]); }
};

// The parabola's share of what the line leaves: c·(x² − its own line), at the newest point.
void MeasureBend(const std::vector<Weighed>& points, const WeightedLine& fit, double variance, PairLine& line) {
  std::vector<Weighed> squares = points;
  const double scale = std::max(line.span_ns(), 1.0);
  for (Weighed& p : squares) p.y = (p.x / scale) * (p.x / scale);
  const WeightedLine straight(squares);
  double sum_hh = 0, sum_hr = 0, end = 0, newest = -HUGE_VAL;
  for (size_t i = 0; i < points.size(); ++i) {
    const double h = straight.Residual(squares[i]);
    sum_hh += points[i].weight * h * h;
    sum_hr += points[i].weight * h * fit.Residual(points[i]);
    if (points[i].x > newest) {
      newest = points[i].x;
      end = h;
    }
  }
  if (sum_hh <= 0) return;
  const double curve = sum_hr / sum_hh;
  line.bend_ns = std::abs(curve * end);
  line.bend_sd_ns = std::sqrt(variance / sum_hh) * std::abs(end);
  const double chance = kChanceSds * line.bend_sd_ns / std::max(line.bend_ns, 1e-9);
  line.bend_share = line.span_ns() < kTangentSpanNs ? 0 : std::max(0.0, 1 - chance * chance);
  line.tangent_x_ns = newest;
  line.tangent_end_ns = line.bend_share * curve * end;
  line.tangent_slope = line.bend_share * curve * (2 * newest / (scale * scale) - straight.slope);
}

// A clock whose rate wanders has left the straight line at its end, which is where it is asked for.
void MoveToTangent(const Clouds& clouds, PairLine& line) {
  const double level = line.tangent_end_ns - line.tangent_slope * line.tangent_x_ns;
  line.slope += line.tangent_slope;
  line.middle_ns += level;
  for (const CloudIndex c : {kLocal, kRemote, kReply}) line.level_ns[c] += clouds[c].sign * level;
}

// The same by midpoints.
void MeasureUneven(const std::vector<Weighed>& points, const WeightedLine& fit, bool both, PairLine& line) {
  double sum[kQuarters][2] = {}, weight[kQuarters][2] = {};
  for (const Weighed& p : points) {
    const double place = (p.x - line.first_ns) / std::max(line.span_ns(), 1.0) * kQuarters;
    const auto q = static_cast<size_t>(std::clamp(place, 0.0, kQuarters - 1.0));
    sum[q][p.series] += p.weight * fit.Residual(p);
    weight[q][p.series] += p.weight;
  }
  double squares = 0;
  for (size_t q = 0; q < kQuarters; ++q) {
    double off = 0;
    for (int s = 0; s < 2; ++s) off += weight[q][s] > 0 ? sum[q][s] / weight[q][s] : 0;
    squares += off * off / (both ? 4 : 1);
  }
  line.uneven_ns = std::sqrt(squares / kQuarters);
}

// Those that took long hardly count.
double WeightedRtt(const std::vector<Weighed>& points, size_t series) {
  double sum = 0, weights = 0;
  for (const Weighed& p : points) {
    if (p.series != series) continue;
    sum += p.weight * p.rtt;
    weights += p.weight;
  }
  return weights > 0 ? sum / weights : 0;
}

// What slows a machine lasts: neighbouring points are off together, which a line takes for its own level, slope or
// bend. Quarters that lie further off the line than the points' own scatter and a bend allow show by how much.
void DoubtNoise(double noise_ns, PairLine& line) {
  const double bend = kQuarterBend * line.bend_ns, uneven = line.uneven_ns;
  const double left = std::sqrt(std::max(0.0, uneven * uneven - bend * bend));
  const double more = std::clamp(left / std::max(line.middle_sd_ns * kQuarterSds, 1.0), kLeastDoubt, kMostDoubt);
  line.middle_sd_ns *= more;
  line.slope_sd *= more;
  line.bend_sd_ns = std::hypot(line.bend_sd_ns * more, noise_ns * kBendNoise);
  if (line.bend_ns > kBentDoubt * line.bend_sd_ns) return;
  line.bend_share = line.tangent_slope = line.tangent_end_ns = 0;
}

// Moves a rough line to the midpoints: weighted least squares, those far off with less weight each turn.
void Refine(const LineData& data, CloudIndex back, double noise_ns, PairLine& line) {
  std::vector<Weighed> points;
  const bool trips = back == kReply && data.ours.size() >= kLeastTrips;
  const bool both = trips && data.theirs.size() >= kLeastTrips;
  if (trips) AddTrips(data.ours, 0, line, points);
  if (both) AddTrips(data.theirs, 1, line, points);
  if (!trips) points = FromClouds(data.clouds, back, line);
  if (points.size() < kLeastTrips) return;
  WeighByExcess(points, 0);
  WeighByExcess(points, 1);
  for (Weighed& p : points) p.weight = p.given;
  double variance = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const WeightedLine fit(points);
    double used = 0;
    variance = 0;
    for (const Weighed& p : points) {
      variance += p.weight * fit.Residual(p) * fit.Residual(p);
      used += p.weight / p.given;
    }
    variance = std::max(variance / std::max(1.0, used - 3), 1e-4);
    for (Weighed& p : points) {
      const double off = std::abs(fit.Residual(p)) * std::sqrt(p.given / variance);
      p.weight = p.given * std::min(1.0, kHuber / std::max(off, 1e-9));
    }
  }
  for (const Weighed& p : points) line.first_ns = std::min(line.first_ns, p.x);
  const WeightedLine fit(points);
  double level[2], sd = 0;
  for (int s = 0; s < 2; ++s) level[s] = fit.level[s] - fit.slope * fit.mean[s];
  line.slope += fit.slope;
  line.middle_ns += both ? (level[0] + level[1]) / 2 : level[0];
  if (both) {
    line.both_ways = line.shift_seen = true;
    line.shift_ns = level[0] - level[1];
    line.shift_sd_ns = std::sqrt(variance / fit.sum[0] + variance / fit.sum[1]);
  }
  if (trips) {
    const double ours = WeightedRtt(points, 0), theirs = both ? WeightedRtt(points, 1) : ours;
    line.used_rtt_ns = (ours + theirs) / 2;
    line.slowest_rtt_ns = std::max(ours, theirs);
  }
  for (int s = 0; s < (both ? 2 : 1); ++s) sd += variance / fit.sum[s] / (both ? 4 : 1);
  line.middle_x_ns = both ? (fit.mean[0] + fit.mean[1]) / 2 : fit.mean[0];
  line.middle_sd_ns = std::sqrt(sd);
  MeasureUneven(points, fit, both, line);
  MeasureBend(points, fit, variance, line);
  line.slope_sd = std::sqrt(variance / std::max(fit.sum_xx, 1.0));
  if (noise_ns > 0) DoubtNoise(noise_ns, line);
}

// The line from a bend in the one that ended, if the points agree that nothing jumped there: the time of the bend and
// the slope behind it that fit best.
bool FromBend(const Clouds& clouds, const LineInputs& in, double shift, PairLine& line) {
  const PairLine& ended = *in.ended;
  const double floors[kClouds] = {in.floor_ns, in.floor_ns, in.floor_ns - shift};
  std::vector<Series> heights;
  std::vector<double> since[2];
  for (const CloudIndex c : {kLocal, kReply}) {
    Series s{clouds[c].sign, {}, {}};
    for (const auto& p : clouds[c].lows) {
      if (p.x_ns < in.ended_from_ns) continue;
      since[heights.size()].push_back(static_cast<double>(p.x_ns - in.ended_from_ns));
      s.z.push_back(static_cast<double>(p.RawNs() - clouds[c].sign * ended.OffsetAt(p.x_ns)) - floors[c]);
    }
    if (s.z.size() < kLeastLows) return false;
    heights.push_back(std::move(s));
  }
  ParallelFit best;
  double best_bend = 0;
  best.cost = HUGE_VAL;
  for (int k = 0; k <= kBendPlaces; ++k) {
    const double bend = static_cast<double>(in.ended_to_ns - in.ended_from_ns) * k / kBendPlaces;
    for (size_t i = 0; i < heights.size(); ++i) {
      heights[i].x.clear();
      for (const double x : since[i]) heights[i].x.push_back(std::max(0.0, x - bend));
    }
    const ParallelFit fit = FitSlopeOnly(heights, -in.most_slope - ended.slope, in.most_slope - ended.slope);
    if (fit.cost >= best.cost) continue;
    best = fit;
    best_bend = bend;
  }
  for (size_t i = 0; i < heights.size(); ++i) {
    std::vector<double> left;
    for (size_t k = 0; k < since[i].size(); ++k) {
      const double x = since[i][k] - best_bend;
      if (x > 0) left.push_back(heights[i].z[k] - heights[i].sign * best.slope * x);
    }
    if (QuantileOf(left, 0.5) < -kJumpNs) return false;
  }
  const int64_t bend_ns = in.ended_from_ns + std::llround(best_bend);
  line.bent = true;
  line.slope = ended.slope + best.slope;
  line.middle_ns = static_cast<double>(ended.OffsetAt(bend_ns) - line.origin_y_ns) +
                   line.slope * static_cast<double>(line.origin_x_ns - bend_ns);
  line.first_ns = static_cast<double>(bend_ns - line.origin_x_ns);
  for (const CloudIndex c : {kLocal, kRemote, kReply}) line.level_ns[c] = floors[c] + clouds[c].sign * line.middle_ns;
  return true;
}

}  // namespace

int64_t PairLine::OffsetAt(int64_t x_ns) const {
  if (!valid) return 0;
  return origin_y_ns + std::llround(middle_ns + slope * static_cast<double>(x_ns - origin_x_ns));
}

double PairLine::ScatterAt(int64_t x_ns, double least_spread_ns) const {
  if (middle_sd_ns > 0) {
    return std::hypot(middle_sd_ns, slope_sd * (static_cast<double>(x_ns - origin_x_ns) - middle_x_ns));
  }
  const double distance = static_cast<double>(x_ns - origin_x_ns) - (first_ns + last_ns) / 2;
  return std::hypot(LevelSd(least_spread_ns), SlopeSd(least_spread_ns) * distance);
}

double PairLine::SlopeSd(double least_spread_ns) const {
  if (middle_sd_ns > 0) return slope_sd;
  return LevelSd(least_spread_ns) * std::sqrt(12.0) / std::max(span_ns(), 1e6);
}

// A tenth's quantile of n points, where a fifth of them lies within the spread; then the mean of two such.
double PairLine::LevelSd(double least_spread_ns) const {
  return 1.5 * std::max(spread_both_ns, least_spread_ns) / std::sqrt(2 * points);
}

double PairLine::HeightNs(const Cloud& cloud, CloudIndex index, const Envelope::Low& low) const {
  const auto z = static_cast<double>(low.RawNs() - cloud.sign * origin_y_ns);
  return z - level_ns[index] - cloud.sign * slope * static_cast<double>(low.x_ns - origin_x_ns);
}

// Of trips, whatever the line: the lowest tenth.
double FastRtt(const std::vector<Midpoint>& trips) {
  std::vector<double> rtts;
  for (const Midpoint& m : trips) rtts.push_back(static_cast<double>(m.rtt_ns));
  return QuantileOf(rtts, kLowQuantile);
}

PairLine FitPairLine(const LineData& data, const LineInputs& in) {
  PairLine line;
  const Clouds& clouds = data.clouds;
  const auto& local = clouds[kLocal].lows;
  const bool remote = in.remote_fresh && clouds[kRemote].lows.size() >= kLeastLows;
  const CloudIndex back = Leads(clouds, kReply) && (in.shift_known || !remote) ? kReply : kRemote;
  if (local.size() < kLeastLows || clouds[back].lows.size() < kLeastLows) return line;
  line.valid = true;
  line.by_reply = back == kReply && !in.shift_known;
  line.origin_x_ns = local.back().x_ns;
  line.origin_y_ns = local.back().RawNs();
  const std::vector<Series> series = MakeSeries(clouds, line);
  // Enough trips decide alone, from wherever they begin; levels are all that is wanted then.
  const bool by_trips = line.span_ns() >= kYoungSpanNs && back == kReply && data.ours.size() >= kLeastTrips;
  ParallelFit fit = by_trips ? FitParallel(series, in.last_slope, in.last_slope) : FitSlope(series, in);
  if (line.span_ns() < kTrustSlopeSpanNs) {
    const ParallelFit kept = FitParallel(series, in.last_slope, in.last_slope);
    if (kept.cost <= kKeepSlopeCost * fit.cost + kCostNoiseNs) fit = kept;
  }
  line.slope = fit.slope;
  line.points = static_cast<double>(std::min(local.size(), clouds[back].lows.size()));
  for (const CloudIndex c : {kLocal, kRemote, kReply}) line.level_ns[c] = fit.level[c];
  line.middle_ns = (fit.level[kLocal] - fit.level[back]) / 2;
  const double shift = back == kReply && in.shift_known ? in.reply_shift_ns : 0;
  const bool young = line.span_ns() < kYoungSpanNs;
  if (!young) Refine(data, back, in.noise_ns, line);
  if (!line.both_ways) line.middle_ns -= shift / 2;
  if (young && in.floor_ns > 0 && in.ended != nullptr && back == kReply) FromBend(clouds, in, shift, line);
  if (!line.bent) SetLevels(clouds, line);
  line.rtt_ns = line.bent ? 2 * in.floor_ns : line.level_ns[kLocal] + line.level_ns[back] + shift;
  if (data.ours.size() >= kRttTrips) line.trip_rtt_ns = FastRtt(data.ours);
  line.spread_both_ns = (line.spread_ns[kLocal] + line.spread_ns[back]) / 2;
  if (young && !line.bent && in.floor_ns > 0 && in.last != nullptr) {
    const double high = line.level_ns[kLocal] - in.floor_ns, low = in.floor_ns - line.level_ns[back] - shift;
    const auto last = static_cast<double>(in.last->OffsetAt(line.origin_x_ns) - line.origin_y_ns);
    if (low < high) line.middle_ns = std::clamp(last, low, high);
  }
  if (line.middle_sd_ns == 0) line.uneven_ns = Uneven(clouds, line);
  if (Leads(clouds, kReply) && !line.both_ways) MeasureShift(clouds, line);
  if (line.bend_share > 0) MoveToTangent(clouds, line);
  return line;
}

void Thin(Cloud& cloud, double slope, size_t most) {
  auto& lows = cloud.lows;
  if (lows.size() <= most) return;
  const size_t group = (lows.size() + most - 1) / most;
  size_t kept = 0;
  for (size_t i = 0; i < lows.size(); i += group) {
    size_t lowest = i;
    for (size_t k = i + 1; k < std::min(i + group, lows.size()); ++k) {
      const auto rise = cloud.sign * slope * static_cast<double>(lows[k].x_ns - lows[lowest].x_ns);
      if (static_cast<double>(lows[k].RawNs() - lows[lowest].RawNs()) < rise) lowest = k;
    }
    lows[kept++] = lows[lowest];
  }
  lows.resize(kept);
}

}  // namespace cw::sync
