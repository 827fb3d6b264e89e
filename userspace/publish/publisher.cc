// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/publisher.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "libcwclock/cwclock.h"

namespace cw::publish {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kRateSpanNs = 100'000'000;  // about a round
constexpr int kChronyReads = 5;
constexpr double kMostTaiSlope = 0.00048;  // 32 bits hold it
constexpr double kMostSlope = 0.01;        // readers' products are made for slopes far below

int64_t Q44(double rate) { return std::llround(std::clamp(rate, -kMostSlope, kMostSlope) * 0x1p44); }
int32_t Q42(double rate) {
  return static_cast<int32_t>(std::llround(std::clamp(rate, -kMostTaiSlope, kMostTaiSlope) * 0x1p42));
}
uint32_t Q32(double ppb) { return static_cast<uint32_t>(std::ceil(std::clamp(ppb * 1e-9, 0.0, 0.5) * 0x1p32)); }

}  // namespace

Publisher::Publisher(PublisherOptions options)
    : options_(std::move(options)),
      clocks_(options_.read_clock),
      watch_(options_.disruption),
      leaps_(LeapSeconds::Load(options_.leap_list)) {}

absl::StatusOr<std::unique_ptr<Publisher>> Publisher::Create(PublisherOptions options) {
  options.page.base_clock = options.local.base;
  std::unique_ptr<Publisher> p(new Publisher(std::move(options)));
  auto page = PageWriter::Create(p->options_.page);
  if (!page.ok()) return page.status();
  p->page_ = *std::move(page);
  p->OpenChrony();
  p->watch_.Poll(p->clocks_.Update());
  // Before an earlier sleep this clock and fleet time stood otherwise.
  if (p->clocks_.now().suspend_ns != 0) p->since_ns_ = p->clocks_.Read(p->options_.local.base);
  return p;
}

// Others read fleet time whether chronyd can be told or not.
void Publisher::OpenChrony() {
  chrony_status_ = absl::FailedPreconditionError("chrony: nothing published yet");
  if (!options_.chrony_sock.empty()) {
    auto sock = MakeChronySock(options_.chrony_sock);
    chrony_error_.Update(sock.status());
    if (sock.ok()) chrony_sock_ = *std::move(sock);
  }
  if (options_.chrony_shm) {
    auto shm = MakeChronyShm(*options_.chrony_shm);
    chrony_error_.Update(shm.status());
    if (shm.ok()) chrony_shm_ = *std::move(shm);
  }
  if (!chrony_error_.ok()) chrony_status_ = chrony_error_;
}

void Publisher::Watch() {
  const Disruption found = watch_.Poll(clocks_.Update());
  if (found == Disruption::kNone) return;
  untold_ = found;
  disrupted_ = true;
  since_ns_ = clocks_.Read(options_.local.base);
  // At once: whoever reads the old line is wrong.
  line_.state = CW_CLOCK_DISRUPTED;
  bpf_.state = CW_FLEET_DISRUPTED;
  SetLife(clocks_.now().mono_ns);
  const absl::Status written = page_->Write(line_);
  (void)written;  // the next Publish says what is wrong with the page
}

Disruption Publisher::Poll() {
  Watch();
  return std::exchange(untold_, Disruption::kNone);
}

void Publisher::SetLife(int64_t mono_ns) {
  line_.mono_ns = mono_ns;
  line_.suspend_ns = clocks_.now().suspend_ns;
  line_.fresh_until_ns = mono_ns + absl::ToInt64Nanoseconds(options_.fresh_for);
  line_.void_after_ns = mono_ns + absl::ToInt64Nanoseconds(options_.void_after);
}

Publisher::Point Publisher::PointAt(const Publication& what, int64_t base_ns) const {
  const sync::FleetTime& time = what.time;
  Point p{};
  p.base_ns = base_ns;
  p.local_ns = base_ns;
  if (options_.local.at) {
    p.local_ns = options_.local.at(base_ns);
    const int64_t later_ns = options_.local.at(base_ns + kRateSpanNs);
    p.local_rate = static_cast<double>(later_ns - p.local_ns - kRateSpanNs) / kRateSpanNs;
  }
  p.fleet_ns = time.ToFleetNs(p.local_ns);
  const double slope = time.slope_ppb * 1e-9;
  p.slope = p.local_rate + slope + p.local_rate * slope;
  const double since_ns = static_cast<double>(p.local_ns - time.anchor_ns) * (1 + slope);
  p.tai_offset_ns = what.tai_offset_ns + std::llround(what.tai_slope_ppb * 1e-9 * since_ns);
  p.tai_slope = what.tai_slope_ppb * 1e-9 * (1 + p.slope);
  return p;
}

uint32_t Publisher::StateOf(const sync::FleetTime& time) {
  const bool synchronised = time.state == sync::SyncState::kSynchronised;
  if (disrupted_ && untold_ == Disruption::kNone && synchronised && time.epoch != epoch_) disrupted_ = false;
  if (disrupted_) return CW_CLOCK_DISRUPTED;
  if (synchronised) return CW_CLOCK_SYNCHRONISED;
  return time.state == sync::SyncState::kFreeRunning ? CW_CLOCK_FREE_RUNNING : CW_CLOCK_UNKNOWN;
}

// Timestamps from before the epoch may be of another local clock: before a step, before a sleep.
void Publisher::NoteEpoch(const sync::FleetTime& time, uint32_t state, int64_t base_ns) {
  if (state != CW_CLOCK_SYNCHRONISED && state != CW_CLOCK_FREE_RUNNING) return;
  if (epoch_ && *epoch_ != time.epoch) since_ns_ = base_ns;
  epoch_ = time.epoch;
}

void Publisher::MakeLine(const Publication& what, const Point& point, uint32_t state) {
  const ClockRelations& clocks = clocks_.now();
  const auto distance_ns = static_cast<double>(std::llabs(point.local_ns - what.time.anchor_ns));
  const bool by_boottime = options_.local.base == CLOCK_MONOTONIC;  // readers come by way of CLOCK_BOOTTIME
  const uint64_t read_ns = by_boottime ? clocks.suspend_error_ns : 0;
  const int64_t mono_ns = by_boottime ? point.base_ns : clocks.mono_ns;
  cw_clock_line l{};
  l.base_ns = point.base_ns;
  l.fleet_ns = point.fleet_ns;
  l.slope_q44 = Q44(point.slope);
  l.bound_ns =
      static_cast<uint64_t>(what.time.bound_ns + std::ceil(distance_ns * options_.max_drift_ppb * 1e-9)) + read_ns;
  l.drift_q32 = Q32(options_.max_drift_ppb);
  l.state = state;
  const auto likely_ns =
      static_cast<uint64_t>(what.time.error_est_ns + std::ceil(distance_ns * what.time.error_drift_ppb * 1e-9)) +
      read_ns;
  l.error_est_ns = std::min(likely_ns, l.bound_ns);
  l.error_drift_q32 = Q32(what.time.error_drift_ppb);
  l.epoch = what.time.epoch;
  l.timeline = what.timeline;
  l.tai_offset_ns = point.tai_offset_ns;
  l.tai_slope_q42 = Q42(point.tai_slope);
  l.tai_bound_ns = what.tai_bound_ns;
  if (l.tai_bound_ns >= 0) l.tai_bound_ns += std::llround(std::ceil(distance_ns * sync::kTaiWanderPpb * 1e-9));
  l.since_ns = since_ns_;
  // The relation is as of clocks.mono_ns, microseconds ago: moved along its own slope.
  l.raw_ns = clocks.raw_ns + (mono_ns - clocks.mono_ns) +
             std::llround(static_cast<double>(mono_ns - clocks.mono_ns) * clocks.raw_slope);
  l.raw_slope_q44 = Q44(clocks.raw_slope);
  l.raw_error_ns = clocks.raw_error_ns;
  l.slew_q32 = Q32(options_.max_slew_ppb);
  l.realtime_low_ns = clocks.realtime_low_ns;
  l.realtime_high_ns = clocks.realtime_high_ns;
  l.realtime_since_ns = clocks.realtime_since_ns;
  if (what.tai_bound_ns >= 0) {
    const auto leap = LeapAt(point.fleet_ns + point.tai_offset_ns);
    if (leap.ok()) l.tai_minus_utc_s = leap->tai_minus_utc_s;
  }
  line_ = l;
  SetLife(mono_ns);
}

// Programs read CLOCK_MONOTONIC and nothing else.
void Publisher::MakeBpf(const Point& point) {
  cw_fleet_line b{};
  b.local_ns = static_cast<uint64_t>(point.base_ns);
  b.fleet_ns = point.fleet_ns;
  b.tai_offset_ns = line_.tai_offset_ns;
  double slope = point.slope, tai_slope = point.tai_slope;
  if (options_.local.base != CLOCK_MONOTONIC) {
    const ClockRelations& clocks = clocks_.now();
    const auto ahead_ns = static_cast<double>(clocks.raw_ns - point.base_ns);
    b.local_ns = static_cast<uint64_t>(clocks.mono_ns);
    b.fleet_ns += std::llround(ahead_ns + ahead_ns * slope);
    slope += clocks.raw_slope + clocks.raw_slope * slope;
    b.tai_offset_ns += std::llround(ahead_ns * tai_slope);
    tai_slope += clocks.raw_slope * tai_slope;
  }
  b.slope_q32 = std::llround(slope * 0x1p32);
  b.tai_slope_q32 = std::llround(tai_slope * 0x1p32);
  b.fresh_until_ns = b.local_ns + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.fresh_for));
  b.void_after_ns = b.local_ns + static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.void_after));
  b.bound_ns = line_.bound_ns;
  b.error_est_ns = line_.error_est_ns;
  b.drift_q32 = line_.drift_q32;
  b.state = line_.state;
  b.epoch = line_.epoch;
  b.timeline = line_.timeline;
  b.tai_bound_ns = line_.tai_bound_ns;
  bpf_ = b;
}

absl::Status Publisher::Publish(const Publication& what) {
  Watch();  // again, so that a line is never made on top of a sleep
  const int64_t base_ns = clocks_.Read(options_.local.base);
  const uint32_t state = StateOf(what.time);
  NoteEpoch(what.time, state, base_ns);
  const Point point = PointAt(what, base_ns);
  MakeLine(what, point, state);
  MakeBpf(point);
  const absl::Status written = page_->Write(line_);
  FeedChrony(what, state);
  return written;
}

absl::Status Publisher::Withdraw() {
  line_.state = CW_CLOCK_UNKNOWN;
  bpf_.state = CW_FLEET_UNKNOWN;
  if (!page_->in_place()) return absl::OkStatus();
  if (absl::Status s = page_->Write(line_); !s.ok()) return s;
  return page_->Withdraw();
}

void Publisher::FillBpf(cw_fleet_clock* record) const {
  const uint64_t next = __atomic_load_n(&record->generation, __ATOMIC_RELAXED) + 1;
  using Word = uint64_t __attribute__((may_alias));
  const auto* from = reinterpret_cast<const Word*>(&bpf_);
  auto* to = reinterpret_cast<Word*>(&record->copy[next & 1]);
  for (size_t i = 0; i < sizeof(bpf_) / sizeof(Word); ++i) __atomic_store_n(to + i, from[i], __ATOMIC_RELEASE);
  __atomic_store_n(&record->generation, next, __ATOMIC_RELEASE);
}

// The list counts in UTC; a leap second is announced long before it comes, so that TAI less 37 s finds it.
absl::StatusOr<LeapState> Publisher::LeapAt(int64_t tai_ns) const {
  if (options_.tai_minus_utc_s != 0) return LeapState{.tai_minus_utc_s = options_.tai_minus_utc_s};
  if (!leaps_.ok()) return leaps_.status();
  return leaps_->At(tai_ns / kSecond - 37);
}

absl::Status Publisher::ChronySampleNow(const Publication& what, ChronySample& sample) {
  if (what.anchor)
    return absl::FailedPreconditionError("chrony: this host is an anchor itself, and would follow itself");
  if (what.tai_bound_ns < 0) return absl::FailedPreconditionError("chrony: no host of the fleet has an anchor to TAI");
  int64_t width_ns = INT64_MAX, base_ns = 0;
  for (int i = 0; i < kChronyReads; ++i) {
    const int64_t before_ns = clocks_.Read(options_.local.base);
    const int64_t realtime_ns = clocks_.Read(CLOCK_REALTIME);
    const int64_t after_ns = clocks_.Read(options_.local.base);
    if (after_ns - before_ns >= width_ns) continue;
    width_ns = after_ns - before_ns;
    base_ns = before_ns + width_ns / 2;
    sample.realtime_ns = realtime_ns;
  }
  const Point point = PointAt(what, base_ns);
  const int64_t tai_ns = point.fleet_ns + point.tai_offset_ns;
  const absl::StatusOr<LeapState> leap = LeapAt(tai_ns);
  if (!leap.ok()) return leap.status();
  sample.utc_ns = tai_ns - leap->tai_minus_utc_s * kSecond;
  sample.leap = leap->announced;
  return absl::OkStatus();
}

void Publisher::FeedChrony(const Publication& what, uint32_t state) {
  if (!chrony_sock_ && !chrony_shm_) return;
  if (clocks_.now().mono_ns < chrony_next_ns_) return;
  chrony_next_ns_ = clocks_.now().mono_ns + absl::ToInt64Nanoseconds(options_.chrony_interval);
  ChronySample sample;
  if (state != CW_CLOCK_SYNCHRONISED) {
    chrony_status_ = absl::FailedPreconditionError("chrony: fleet time is not synchronised");
    return;
  }
  chrony_status_ = ChronySampleNow(what, sample);
  if (!chrony_status_.ok()) return;
  if (chrony_sock_) chrony_status_ = chrony_sock_->Send(sample);
  if (chrony_shm_) chrony_status_.Update(chrony_shm_->Send(sample));
  if (chrony_status_.ok()) ++chrony_samples_;
}

}  // namespace cw::publish
