// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/hidden_clock.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "bpf/clock.h"
#include "maps/names.h"

namespace cw::lab {

cw_lab_clock MakeHiddenClock(const HiddenClockSpec& spec, uint64_t start_ns) {
  cw_lab_clock clock{};
  clock.offset_ns = spec.offset_ns;
  clock.segments = CW_LAB_SEGMENTS;
  std::mt19937 random(spec.seed);
  const bool wanders = spec.wander_ppm > 0;
  const double most_ppm = wanders ? spec.wander_ppm : std::abs(spec.drift_ppm);
  std::uniform_real_distribution<double> draw(-most_ppm, most_ppm);
  double drift_ppm = spec.drift_ppm;
  int64_t base = spec.offset_ns;
  for (int i = 0; i < CW_LAB_SEGMENTS; ++i) {
    const auto length_ns = static_cast<int64_t>(spec.segment_s * 1e9);
    clock.start_ns[i] = start_ns + static_cast<uint64_t>(i) * static_cast<uint64_t>(length_ns);
    if (i > 0) drift_ppm = draw(random) + (wanders ? drift_ppm : 0);
    clock.drift_ppb[i] = std::llround(1000 * drift_ppm);
    clock.base_ns[i] = base;
    base += length_ns / 1000 * clock.drift_ppb[i] / 1000000;
    if (i == 0) base += spec.step_ns;
  }
  return clock;
}

std::string HiddenClockPin(const std::string& instance) {
  return absl::StrCat(CW_BPFFS, "/cwlab/", instance, "-clock");
}

int64_t HiddenClockError(const cw_lab_clock& clock, uint64_t true_ns) {
  return static_cast<int64_t>(cw_lab_clock_at(&clock, true_ns) - true_ns);
}

int64_t HiddenClock::AtNs(int64_t monotonic_ns) const {
  return monotonic_ns + HiddenClockError(clock_, static_cast<uint64_t>(monotonic_ns));
}

int64_t HiddenClock::NowNs() const {
  const int64_t now_ns = MonotonicClock().NowNs();
  return now_ns + HiddenClockError(clock_, static_cast<uint64_t>(now_ns));
}

std::string NicClockPin(const std::string& instance) { return absl::StrCat(CW_BPFFS, "/cwlab/", instance, "-nic"); }

// The tightest of five looks at the machine's clock; the wire to the NIC is made longer on paper.
std::optional<sync::CrossStamp> SimulatedNicClock::Read() {
  const MonotonicClock monotonic;
  int64_t before_ns = 0, at_ns = 0, after_ns = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const int64_t first_ns = monotonic.NowNs(), second_ns = monotonic.NowNs(), third_ns = monotonic.NowNs();
    if (third_ns - first_ns >= after_ns - before_ns) continue;
    before_ns = first_ns;
    at_ns = second_ns;
    after_ns = third_ns;
  }
  std::exponential_distribution<double> jitter(1 / std::max(spec_.jitter_ns, 1e-3));
  std::normal_distribution<double> noise(0, std::max(spec_.noise_ns, 1e-3));
  const double there_ns = spec_.read_ns / 2 + jitter(random_), back_ns = spec_.read_ns / 2 + jitter(random_);
  return sync::CrossStamp{.before_ns = local_->AtNs(before_ns) - std::llround(there_ns),
                          .nic_ns = static_cast<int64_t>(cw_lab_clock_at(&nic_, static_cast<uint64_t>(at_ns))) +
                                    std::llround(noise(random_)),
                          .after_ns = local_->AtNs(after_ns) + std::llround(back_ns)};
}

}  // namespace cw::lab
