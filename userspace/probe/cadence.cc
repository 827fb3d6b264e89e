// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/cadence.h"

#include <algorithm>
#include <cmath>

namespace cw::probe {
namespace {

constexpr int64_t kGroups = 16;

}  // namespace

Cadence::Cadence(const CadenceOptions& options) : options_(options) {
  options_.active_interval_ns = std::max<int64_t>(options_.active_interval_ns, 50'000);
  options_.idle_interval_ns = std::max(options_.idle_interval_ns, options_.active_interval_ns);
  options_.budget_pps = std::max(options_.budget_pps, 1.0);
  active_ns_ = options_.active_interval_ns;
  idle_ns_ = options_.idle_interval_ns;
}

// The pair's next round after now. Pairs are spread over their interval, so that a large mesh does not send in bursts,
// but in few groups: a wake-up of the thread costs more than a probe.
int64_t Cadence::NextDue(uint32_t index, int64_t now_ns) const {
  const int64_t grid = options_.active_interval_ns;
  const int64_t interval = pairs_[index].active ? active_ns_ : idle_ns_;
  const int64_t spacing = std::max(grid, interval / kGroups / grid * grid);
  const int64_t groups = std::max<int64_t>(1, interval / spacing);
  const int64_t phase = static_cast<int64_t>((index * 0x9e3779b1u) >> 8) % groups * spacing;
  return ((now_ns - phase) / interval + 1) * interval + phase;
}

void Cadence::SetPair(uint32_t pair, uint32_t probes, int64_t now_ns) {
  if (pair >= pairs_.size()) pairs_.resize(pair + 1);
  Pair& p = pairs_[pair];
  (p.active ? active_probes_ : idle_probes_) += uint64_t{probes} - p.probes;  // modulo 2^64: a difference may be < 0
  const bool starts = p.probes == 0 && probes != 0;
  p.probes = probes;
  Share();
  if (starts) p.due_ns = NextDue(pair, now_ns);
  if (probes == 0) p.due_ns = INT64_MAX;
}

void Cadence::SetActive(uint32_t pair, bool active, int64_t now_ns) {
  if (pair >= pairs_.size()) pairs_.resize(pair + 1);
  Pair& p = pairs_[pair];
  if (p.active == active) return;
  (p.active ? active_probes_ : idle_probes_) -= p.probes;
  p.active = active;
  (p.active ? active_probes_ : idle_probes_) += p.probes;
  Share();
  if (p.probes == 0) return;
  const int64_t next = NextDue(pair, now_ns);
  p.due_ns = active ? std::min(p.due_ns, next) : next;
}

bool Cadence::IsActive(uint32_t pair) const { return pair < pairs_.size() && pairs_[pair].active; }

void Cadence::Share() {
  const double active_want =
      1e9 * static_cast<double>(active_probes_) / static_cast<double>(options_.active_interval_ns);
  const double idle_want = 1e9 * static_cast<double>(idle_probes_) / static_cast<double>(options_.idle_interval_ns);
  active_ns_ = options_.active_interval_ns;
  idle_ns_ = options_.idle_interval_ns;
  if (active_want + idle_want <= options_.budget_pps) return;
  double idle = std::min(idle_want, options_.idle_share * options_.budget_pps);
  if (active_probes_ == 0) idle = options_.budget_pps;
  const double active = std::min(active_want, options_.budget_pps - idle);
  idle = std::min(idle_want, options_.budget_pps - active);
  if (active_probes_ != 0) active_ns_ = std::llround(1e9 * static_cast<double>(active_probes_) / active);
  if (idle_probes_ != 0) idle_ns_ = std::llround(1e9 * static_cast<double>(idle_probes_) / idle);
  idle_ns_ = std::max(idle_ns_, active_ns_);
}

// Pairs that are probed at every tick are served whenever the thread comes. Others that are far behind wait for their
// own next tick, or all that came due during a stall would go out in one burst.
int64_t Cadence::LatestNs(int64_t interval) const {
  if (interval < 2 * options_.active_interval_ns) return INT64_MAX;
  return std::max(2 * options_.active_interval_ns, interval / 8);
}

void Cadence::TakeDue(int64_t now_ns, std::vector<uint32_t>* due) {
  due->clear();
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    Pair& p = pairs_[i];
    if (p.due_ns > now_ns) continue;
    const int64_t interval = p.active ? active_ns_ : idle_ns_;
    if (now_ns - p.due_ns <= LatestNs(interval)) {
      due->push_back(i);
    } else {
      ++skipped_;
    }
    const int64_t next = NextDue(i, now_ns);
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

int64_t Cadence::IntervalNs(uint32_t pair) const { return IsActive(pair) ? active_ns_ : idle_ns_; }

}  // namespace cw::probe
