// SPDX-License-Identifier: Apache-2.0
#include "sync/clock_domain.h"

#include <algorithm>
#include <cmath>

namespace cw::sync {
namespace {

constexpr size_t kSegmentsKept = 64;
constexpr size_t kReadsKept = 3;  // a change of slew is seen a read or two late: so many are tried with the new segment
constexpr double kSliverNs = 0.1;
constexpr int64_t kTickNs = 1;  // clocks are read in whole nanoseconds, rounded down

double Middle(const Corridor::Range& r) { return (r.low + r.high) / 2; }

}  // namespace

Corridor::Corridor(double low, double high, double most_slope)
    : vertices_{{low, -most_slope}, {high, -most_slope}, {high, most_slope}, {low, most_slope}} {}

// Sutherland and Hodgman's clipping, by one edge of the interval after the other.
bool Corridor::Clip(double x_low, double low, double x_high, double high) {
  std::vector<Vertex> left = vertices_, kept;
  for (const double sign : {1.0, -1.0}) {
    const double limit = sign > 0 ? low : -high;
    const double x = sign > 0 ? x_low : x_high;
    const auto inside = [&](const Vertex& v) { return sign * (v.level + v.slope * x) - limit; };
    // Nothing, or a corner thinner than any clock can show: without this rule thousands of reads make thousands of
    // them.
    if (std::all_of(left.begin(), left.end(), [&](const Vertex& v) { return inside(v) > -kSliverNs; })) continue;
    kept.clear();
    for (size_t i = 0; i < left.size(); ++i) {
      const Vertex &a = left[i], &b = left[(i + 1) % left.size()];
      const double in_a = inside(a), in_b = inside(b);
      if (in_a >= 0) kept.push_back(a);
      if ((in_a >= 0) == (in_b >= 0)) continue;
      const double share = in_a / (in_a - in_b);
      kept.push_back({a.level + share * (b.level - a.level), a.slope + share * (b.slope - a.slope)});
    }
    if (kept.empty()) return false;
    left = kept;
  }
  vertices_ = std::move(left);
  return true;
}

Corridor::Range Corridor::At(double x) const {
  Range r{HUGE_VAL, -HUGE_VAL};
  for (const Vertex& v : vertices_) {
    r.low = std::min(r.low, v.level + v.slope * x);
    r.high = std::max(r.high, v.level + v.slope * x);
  }
  return r;
}

Corridor::Range Corridor::slope() const {
  Range r{HUGE_VAL, -HUGE_VAL};
  for (const Vertex& v : vertices_) {
    r.low = std::min(r.low, v.slope);
    r.high = std::max(r.high, v.slope);
  }
  return r;
}

Corridor::Range ClockDomain::Segment::At(int64_t a_ns) const {
  return corridor.At(static_cast<double>(a_ns - origin_a_ns));
}

ClockDomain::Segment ClockDomain::Begin(const Read& read, double most_slope) {
  const int64_t d_ns = read.low_ns;
  const auto width = static_cast<double>(read.high_ns - read.low_ns);
  const double lean = most_slope * static_cast<double>(read.half_ns);
  Segment segment{read.a_ns, d_ns, read.a_ns, read.a_ns, width, 0, Corridor(-lean, width + lean, most_slope)};
  Extend(segment, read);
  return segment;
}

bool ClockDomain::Extend(Segment& segment, const Read& read) {
  const auto x = static_cast<double>(read.a_ns - segment.origin_a_ns);
  const auto half = static_cast<double>(read.half_ns);
  const auto low = static_cast<double>(read.low_ns - segment.origin_d_ns);
  const auto width = static_cast<double>(read.high_ns - read.low_ns);
  if (!segment.corridor.Clip(x + half, low, x - half, low + width)) return false;
  segment.widest_ns = std::max(segment.widest_ns, width);
  const int64_t gap = std::max(read.a_ns - segment.last_a_ns, segment.first_a_ns - read.a_ns);
  segment.longest_gap_ns = std::max(segment.longest_gap_ns, static_cast<double>(gap));
  segment.first_a_ns = std::min(segment.first_a_ns, read.a_ns);
  segment.last_a_ns = std::max(segment.last_a_ns, read.a_ns);
  return true;
}

bool ClockDomain::AddPair(int64_t a_before_ns, int64_t b_ns, int64_t a_after_ns) {
  if (a_after_ns < a_before_ns || a_after_ns - a_before_ns > options_.widest_read_ns) return false;
  const int64_t half_ns = (a_after_ns - a_before_ns + 1) / 2;
  const Read read{a_before_ns + (a_after_ns - a_before_ns) / 2, half_ns, b_ns - a_after_ns - kTickNs,
                  b_ns - a_before_ns + kTickNs};
  if (!segments_.empty() && read.a_ns <= segments_.back().last_a_ns) {
    if (read.a_ns > segments_.back().last_a_ns - options_.widest_read_ns) return false;
    Clear();  // A was set back
    ++changes_;
    ++steps_;
  }
  const bool first = segments_.empty();
  const bool old = !first && read.a_ns - segments_.back().first_a_ns > options_.longest_segment_ns;
  if (first || old || !Extend(segments_.back(), read)) {
    if (!first && !old) ++changes_;
    BeginAnew(read);
  }
  recent_.push_back(read);
  if (recent_.size() > kReadsKept) recent_.pop_front();
  return true;
}

void ClockDomain::BeginAnew(const Read& read) {
  Segment segment = Begin(read, 2 * options_.max_slew_ppb * 1e-9);
  for (size_t i = recent_.size(); i > 0 && Extend(segment, recent_[i - 1]); --i) continue;
  if (!recent_.empty() && segment.first_a_ns == read.a_ns) ++steps_;  // no slew leads here from the read before
  segments_.push_back(std::move(segment));
  if (segments_.size() > kSegmentsKept) segments_.pop_front();
}

ClockDomain::Converted ClockDomain::Within(const Segment& segment, int64_t a_ns) const {
  const Corridor::Range d = segment.At(a_ns);
  const double slew = options_.max_slew_ppb * 1e-9;
  const auto beyond = static_cast<double>(std::max(segment.first_a_ns - a_ns, a_ns - segment.last_a_ns));
  // Against a steady line a slew that flips its sign runs away at twice its rate.
  const double unseen = segment.widest_ns + slew * segment.longest_gap_ns + 2 * slew * std::max(0.0, beyond);
  const double error = (d.high - d.low) / 2;
  return {a_ns + segment.origin_d_ns + std::llround(Middle(d)), std::llround(error) + kTickNs,
          std::llround(error + unseen) + kTickNs};
}

// The slew changed between the two segments: where their lines meet, if they do.
ClockDomain::Converted ClockDomain::Between(const Segment& before, const Segment& after, int64_t a_ns) const {
  const auto gap = static_cast<double>(after.first_a_ns - before.last_a_ns);
  const auto x = static_cast<double>(a_ns - before.last_a_ns);
  const double shift = static_cast<double>(after.origin_d_ns - before.origin_d_ns);
  const double from = Middle(before.At(before.last_a_ns)), to = Middle(after.At(after.first_a_ns)) + shift;
  const double slope_before = Middle(before.corridor.slope()), slope_after = Middle(after.corridor.slope());
  double d = from + (to - from) * x / gap;
  const double kink = (to - from - slope_after * gap) / (slope_before - slope_after);
  if (kink > 0 && kink < gap) d = x < kink ? from + slope_before * x : to - slope_after * (gap - x);
  const Corridor::Range end = before.At(before.last_a_ns);
  const double error = (end.high - end.low) / 2 + after.widest_ns;
  const double unseen = options_.max_slew_ppb * 1e-9 * gap + before.widest_ns;
  return {a_ns + before.origin_d_ns + std::llround(d), std::llround(error), std::llround(error + unseen)};
}

std::optional<ClockDomain::Converted> ClockDomain::ToB(int64_t a_ns) const {
  for (size_t i = segments_.size(); i > 0; --i) {
    const Segment& s = segments_[i - 1];
    if (a_ns >= s.first_a_ns) return Within(s, a_ns);
    if (i == 1) break;
    const Segment& before = segments_[i - 2];
    if (a_ns > before.last_a_ns) return Between(before, s, a_ns);
  }
  if (segments_.size() == 1) return Within(segments_[0], a_ns);  // just before the first read
  return std::nullopt;
}

std::optional<ClockDomain::Converted> ClockDomain::ToA(int64_t b_ns) const {
  if (segments_.empty()) return std::nullopt;
  int64_t a_ns = b_ns - segments_.back().origin_d_ns;
  std::optional<Converted> there;
  for (int i = 0; i < 4; ++i) {  // the rates differ by far less than one in ten: each turn gains a digit or more
    there = ToB(a_ns);
    if (!there) return std::nullopt;
    a_ns += b_ns - there->ns;
  }
  there->ns = a_ns;
  return there;
}

Corridor::Range ClockDomain::slew_range() const {
  return segments_.empty() ? Corridor::Range{} : segments_.back().corridor.slope();
}

double ClockDomain::slew_ppb() const { return segments_.empty() ? 0 : Middle(segments_.back().corridor.slope()) * 1e9; }

void ClockDomain::Clear() {
  segments_.clear();
  recent_.clear();
}

}  // namespace cw::sync
