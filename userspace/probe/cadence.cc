// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/cadence.h"

#include <algorithm>
#include <cmath>

namespace cw::probe {
namespace {

constexpr int64_t kGroups = 16;     // at most
constexpr uint64_t kBurst = 32;     // probes that are no burst
constexpr int64_t kYoungTimes = 4;  // so much more often are young clock pairs probed

// Probes per second that pairs wish for.
struct Wants {
  double doubt = 0, active = 0, clock = 0, idle = 0;
};

// What pairs in doubt would have if they were not: where a spine has died all are in doubt at once, and a share that is
// meant for few would make them wait for longer than before.
double DoubtAsActive(const CadenceOptions& options, const Wants& want) {
  if (want.doubt <= 0) return 0;
  const double budget = options.budget_pps - std::min(want.clock, options.clock_share * options.budget_pps);
  const double left = budget - std::min(want.idle, options.idle_share * budget);
  return left * want.doubt / (want.doubt + want.active);
}

}  // namespace

Cadence::Cadence(const CadenceOptions& options) { Take(options); }

// What was due stays due: a budget that changes more often than a pair is probed would put it off for ever. Nor does a
// change bring it forward by much, or each would cost a round.
void Cadence::SetOptions(const CadenceOptions& options, int64_t now_ns) {
  Take(options);
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    if (pairs_[i].probes != 0) pairs_[i].due_ns = std::min(pairs_[i].due_ns, DueAfter(i, now_ns));
  }
}

void Cadence::Take(const CadenceOptions& options) {
  options_ = options;
  options_.active_interval_ns = std::max<int64_t>(options_.active_interval_ns, 50'000);
  options_.idle_interval_ns = std::max(options_.idle_interval_ns, options_.active_interval_ns);
  options_.clock_interval_ns =
      std::clamp(options_.clock_interval_ns, options_.active_interval_ns, options_.idle_interval_ns);
  options_.budget_pps = std::max(options_.budget_pps, 1.0);
  Share();
}

int64_t Cadence::NominalNs(Pace pace) const {
  switch (pace) {
    case kDoubt:
    case kActive:
      return options_.active_interval_ns;
    case kYoung:
      return std::max(options_.active_interval_ns, options_.clock_interval_ns / kYoungTimes);
    case kClock:
      return options_.clock_interval_ns;
    default:
      return options_.idle_interval_ns;
  }
}

// The pair's next round after now. Pairs are spread over their interval, so that a large mesh does not send in bursts,
// but in few groups, and all at once if they are few: a wake-up of the thread costs more than ten probes.
int64_t Cadence::NextDue(uint32_t index, int64_t now_ns) const {
  const int64_t grid = options_.active_interval_ns;
  const Pace pace = pairs_[index].pace();
  const int64_t interval = interval_ns_[pace];
  const int64_t wanted = std::clamp(static_cast<int64_t>(probes_[pace] / kBurst), int64_t{1}, kGroups);
  const int64_t spacing = std::max(grid, interval / wanted / grid * grid);
  const int64_t groups = std::max<int64_t>(1, interval / spacing);
  const int64_t phase = static_cast<int64_t>((index * 0x9e3779b1u) >> 8) % groups * spacing;
  return ((now_ns - phase) / interval + 1) * interval + phase;
}

// The next one behind a round that is sent now: behind a late one, or on another grid than before, it may be half an
// interval early or late. Pairs of every tick keep to their ticks.
int64_t Cadence::DueAfter(uint32_t index, int64_t now_ns) const {
  const int64_t interval = interval_ns_[pairs_[index].pace()];
  const int64_t next = NextDue(index, now_ns);
  const bool every_tick = interval < 2 * options_.active_interval_ns;
  return !every_tick && next - now_ns < interval / 2 ? next + interval : next;
}

Cadence::Pair& Cadence::At(uint32_t pair) {
  if (pair >= pairs_.size()) pairs_.resize(pair + 1);
  return pairs_[pair];
}

void Cadence::SetPair(uint32_t pair, uint32_t probes, int64_t now_ns) {
  Pair& p = At(pair);
  probes_[p.pace()] += uint64_t{probes} - p.probes;  // modulo 2^64: a difference may be < 0
  const bool starts = p.probes == 0 && probes != 0;
  p.probes = probes;
  Share();
  if (starts) p.due_ns = NextDue(pair, now_ns);
  if (probes == 0) p.due_ns = INT64_MAX;
}

void Cadence::SetActive(uint32_t pair, bool active, int64_t now_ns) {
  Pair& p = At(pair);
  const Pace before = p.pace();
  p.active = active;
  Repace(pair, before, now_ns);
}

void Cadence::SetDoubt(uint32_t pair, bool doubt, int64_t now_ns) {
  Pair& p = At(pair);
  const Pace before = p.pace();
  p.doubt = doubt;
  Repace(pair, before, now_ns);
}

void Cadence::SetClock(uint32_t pair, ClockPace pace, int64_t now_ns) {
  Pair& p = At(pair);
  const Pace before = p.pace();
  p.clock = pace == ClockPace::kNone ? kIdle : pace == ClockPace::kSteady ? kClock : kYoung;
  Repace(pair, before, now_ns);
}

void Cadence::Repace(uint32_t pair, Pace before, int64_t now_ns) {
  Pair& p = pairs_[pair];
  if (p.pace() == before) return;
  probes_[before] -= p.probes;
  probes_[p.pace()] += p.probes;
  Share();
  if (p.probes == 0) return;
  const int64_t next = NextDue(pair, now_ns);
  p.due_ns = p.pace() < before ? std::min(p.due_ns, next) : next;
}

void Cadence::Share() {
  ++shared_;
  double want[kPaces];
  for (const Pace pace : {kDoubt, kActive, kYoung, kClock, kIdle}) {
    interval_ns_[pace] = NominalNs(pace);
    want[pace] = 1e9 * static_cast<double>(probes_[pace]) / static_cast<double>(NominalNs(pace));
  }
  const double clocks = want[kYoung] + want[kClock];
  const double others = want[kActive] + want[kIdle] + clocks;
  if (want[kDoubt] + others <= options_.budget_pps) return;
  const Wants wants{.doubt = want[kDoubt], .active = want[kActive], .clock = clocks, .idle = want[kIdle]};
  const double most = std::max(
      {options_.doubt_share * options_.budget_pps, options_.budget_pps - others, DoubtAsActive(options_, wants)});
  const double doubt = std::min(want[kDoubt], most);
  if (doubt > 0) interval_ns_[kDoubt] = std::llround(static_cast<double>(interval_ns_[kDoubt]) * want[kDoubt] / doubt);
  const double budget = options_.budget_pps - doubt;
  double left = budget - want[kActive] - want[kIdle];
  if (clocks <= left) return;
  const double clock = std::min(clocks, std::max(left, options_.clock_share * budget));
  left = budget - clock;
  if (want[kActive] + want[kIdle] > left) ShareShort(left, want[kActive], want[kIdle]);
  if (clock <= 0) return;
  for (const Pace pace : {kYoung, kClock}) {
    interval_ns_[pace] = std::llround(static_cast<double>(interval_ns_[pace]) * clocks / clock);
  }
}

// Active and idle pairs want more than there is.
void Cadence::ShareShort(double budget_pps, double active_want, double idle_want) {
  double idle = std::min(idle_want, options_.idle_share * budget_pps);
  if (probes_[kActive] == 0) idle = budget_pps;
  const double active = std::min(active_want, budget_pps - idle);
  idle = std::min(idle_want, budget_pps - active);
  if (probes_[kActive] != 0) {
    interval_ns_[kActive] = std::llround(1e9 * static_cast<double>(probes_[kActive]) / active);
  }
  if (probes_[kIdle] != 0) interval_ns_[kIdle] = std::llround(1e9 * static_cast<double>(probes_[kIdle]) / idle);
  interval_ns_[kIdle] = std::max(interval_ns_[kIdle], interval_ns_[kActive]);
}

// Pairs that are probed at every tick are served whenever the thread comes. Others that are far behind wait for their
// own next tick where they are many, or all that came due during a stall would go out in one burst.
int64_t Cadence::LatestNs(int64_t interval) const {
  if (interval < 2 * options_.active_interval_ns) return INT64_MAX;
  return std::max(2 * options_.active_interval_ns, interval / 8);
}

void Cadence::TakeDue(int64_t now_ns, std::vector<uint32_t>* due) {
  due->clear();
  uint64_t late = 0;  // probes
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    Pair& p = pairs_[i];
    if (p.due_ns > now_ns) continue;
    const int64_t interval = interval_ns_[p.pace()];
    int64_t next = DueAfter(i, now_ns);
    if (now_ns - p.due_ns <= LatestNs(interval)) {
      due->push_back(i);
    } else if (late + p.probes <= kBurst) {
      due->push_back(i);
      late += p.probes;
    } else {
      ++skipped_;
      next = NextDue(i, now_ns);
    }
    skipped_ += static_cast<uint64_t>(std::max<int64_t>(0, (next - p.due_ns) / interval - 1));
    p.due_ns = next;
  }
}

int64_t Cadence::NextWakeNs() const {
  int64_t due = INT64_MAX;
  for (const Pair& p : pairs_) due = std::min(due, p.due_ns);
  if (due == INT64_MAX) return due;
  const int64_t grid = options_.active_interval_ns;
  return (due + grid - 1) / grid * grid;
}

int64_t Cadence::IntervalNs(uint32_t pair) const {
  return interval_ns_[pair < pairs_.size() ? pairs_[pair].pace() : kIdle];
}

}  // namespace cw::probe
