// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/device_clock.h"

#include <algorithm>
#include <cstdlib>

namespace cw::probe_verbs {
namespace {

constexpr int64_t kSlackNs = 200;  // beside the tie's likely error

}  // namespace

int64_t DeviceClock::TicksIn(int64_t ns) const {
  return static_cast<int64_t>(static_cast<__int128>(ns) * static_cast<int64_t>(counter_.khz) / 1'000'000);
}

int64_t DeviceClock::NsIn(int64_t ticks) const {
  return static_cast<int64_t>(static_cast<__int128>(ticks) * 1'000'000 / static_cast<int64_t>(counter_.khz));
}

// The count says only where it stands within the mask: of all that it may mean, the nearest to what is expected.
int64_t DeviceClock::AwayFromExpected(uint64_t ticks, int64_t at_ns) const {
  const uint64_t expected = last_ticks_ + static_cast<uint64_t>(TicksIn(at_ns - last_at_ns_));
  const uint64_t ahead = (ticks - expected) & counter_.mask;
  const uint64_t behind = (expected - ticks) & counter_.mask;
  return ahead <= counter_.mask / 2 ? static_cast<int64_t>(ahead)
                                    : -static_cast<int64_t>(std::min<uint64_t>(behind, INT64_MAX));
}

void DeviceClock::Add(const TickReading& reading) {
  const int64_t at_ns = reading.before_ns + (reading.after_ns - reading.before_ns) / 2;
  if (begun_) {
    const int64_t away = AwayFromExpected(reading.ticks, at_ns), most = TicksIn(kMostAwayNs);
    passed_ += TicksIn(at_ns - last_at_ns_) + std::clamp(away, -most, most);
    if (std::abs(away) > most) begun_ = false;
  }
  if (!begun_) {
    tie_ = sync::NicTie();
    passed_ = 0;
    begun_ = true;
  }
  last_ticks_ = reading.ticks;
  last_at_ns_ = at_ns;
  tie_.Add({.before_ns = reading.before_ns, .nic_ns = NsIn(passed_), .after_ns = reading.after_ns});
  const sync::Estimate e = tie_.At(at_ns + kPeriodNs);
  error_ns_ = e.error_est_ns;
  bound_ns_ = e.bound_ns;
  usable_ = e.settled && bound_ns_ <= kMostBoundNs;
}

DeviceClock::Stamp DeviceClock::Convert(uint64_t ticks, int64_t now_ns) const {
  if (!ready(now_ns)) return {};
  const Stamp doubted{.verdict = Stamp::Verdict::kDoubted};
  const int64_t away = AwayFromExpected(ticks, now_ns);
  if (std::abs(away) > TicksIn(kMostAwayNs)) return doubted;
  const int64_t ns = tie_.ToHostNs(NsIn(passed_ + TicksIn(now_ns - last_at_ns_) + away));
  if (ns > now_ns + 2 * error_ns_ + kSlackNs || ns < now_ns - kOldestNs) return doubted;
  return {.verdict = Stamp::Verdict::kTaken, .ns = std::min(ns, now_ns)};
}

}  // namespace cw::probe_verbs
