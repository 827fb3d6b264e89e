// SPDX-License-Identifier: Apache-2.0
#include "sync/line_keeper.h"

#include <cmath>
#include <cstdlib>

namespace cw::sync {
namespace {

// What NTP clients can ask of the kernel: a tick of 9,000 to 11,000 µs, and 500 ppm more.
constexpr double kMostLineSlewPpb = 101e6;
constexpr int64_t kRoundingNs = 2;  // of local time: the line's fractions

int64_t Q32(double rate) { return std::llround(rate * 0x1p32); }

int64_t AheadNs(const cw_local_line& line, int64_t at_ns) {
  return static_cast<int64_t>(cw_local_at(&line, static_cast<uint64_t>(at_ns)) - static_cast<uint64_t>(at_ns));
}

// What the line will still make good.
int64_t WorkLeftNs(const cw_local_line& line, int64_t at_ns) {
  const int64_t left_ns = line.work_ns - (at_ns - static_cast<int64_t>(line.pivot_ns));
  return left_ns <= 0 ? 0 : (left_ns * line.work_q32) >> 32;
}

}  // namespace

void LineKeeper::Recent::Add(int64_t at_ns, int64_t value, int64_t span_ns) {
  if (since_ns_ == INT64_MIN) since_ns_ = at_ns;
  if (at_ns - since_ns_ >= span_ns) {
    older_ = at_ns - since_ns_ >= 2 * span_ns ? 0 : newer_;
    newer_ = 0;
    since_ns_ = at_ns;
  }
  newer_ = std::max(newer_, value);
}

LineKeeper::LineKeeper(const LineKeeperOptions& options)
    : options_(options), domain_({.max_slew_ppb = kMostLineSlewPpb}) {}

// RAW − local, less what it was when they were tied. Until the line changes for the first time nothing ties them.
double LineKeeper::Missing(const ClockDomain::Converted& raw, int64_t at_ns, const cw_local_line& line) {
  const int64_t difference_ns = raw.ns - at_ns - AheadNs(line, at_ns);
  if (!tied_) raw_less_local_ns_ = difference_ns;
  return static_cast<double>(difference_ns - raw_less_local_ns_);
}

std::optional<cw_local_line> LineKeeper::Look(const PairedRead& read, const cw_local_line& line) {
  const uint32_t steps = domain_.steps();
  if (!domain_.AddPair(read.a_before_ns, read.b_ns, read.a_after_ns)) return std::nullopt;
  const int64_t at_ns = domain_.newest_a_ns();
  const std::optional<ClockDomain::Converted> raw = domain_.ToB(at_ns);
  const Corridor::Range rate = domain_.slew_range();
  const double held_rate = static_cast<double>(line.rate_q32) * 0x1p-32;
  const bool rate_holds = held_rate >= rate.low && held_rate <= rate.high;
  if (!rate_holds || domain_.steps() != steps) tied_ = true;
  double missing = Missing(*raw, at_ns, line);
  if (std::abs(missing) > static_cast<double>(options_.most_missed_ns)) {
    ++given_up_;
    last_given_up_ns_ = std::llround(missing);
    raw_less_local_ns_ += last_given_up_ns_;
    missing = 0;
  }
  missing_ns_ = std::llround(missing);
  if (looked_ns_ != INT64_MIN) gaps_.Add(at_ns, at_ns - looked_ns_, options_.remember_ns);
  errors_.Add(at_ns, std::llabs(missing_ns_) + read.a_after_ns - read.a_before_ns, options_.remember_ns);
  looked_ns_ = at_ns;
  const bool level_holds = std::abs(missing_ns_ - WorkLeftNs(line, at_ns)) <= raw->error_ns + kRoundingNs;
  if (rate_holds && level_holds) return std::nullopt;

  cw_local_line next{};
  next.rate_q32 = rate_holds ? line.rate_q32 : Q32((rate.low + rate.high) / 2);
  if (std::abs(missing_ns_) > raw->error_ns) {
    const double over_ns = static_cast<double>(options_.work_over_ns);
    const double work = std::clamp(missing / over_ns, -options_.work_ppb * 1e-9, options_.work_ppb * 1e-9);
    next.work_q32 = Q32(work);
    next.work_ns = std::llround(missing / work);
  }
  return Continue(line, next, at_ns);
}

int64_t LineKeeper::BoundNs(int64_t now_ns) const {
  if (looked_ns_ == INT64_MIN) return 0;
  const auto unseen_ns = static_cast<double>(std::max(gaps_.most(), now_ns - looked_ns_));
  return errors_.most() + kRoundingNs + static_cast<int64_t>(std::ceil(unseen_ns * options_.max_slew_ppb * 1e-9));
}

cw_local_line Continue(const cw_local_line& held, const cw_local_line& line, int64_t at_ns) {
  cw_local_line next = line;
  next.pivot_ns = static_cast<uint64_t>(at_ns);
  next.ahead_ns = AheadNs(held, at_ns);
  return next;
}

}  // namespace cw::sync
