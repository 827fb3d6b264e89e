// SPDX-License-Identifier: Apache-2.0
// How fast Agreement follows the others: gains, the rate, the slew, and what a jump of rates left to make good.
#include <algorithm>
#include <cmath>

#include "sync/agreement_impl.h"

namespace cw::sync {

// How much of a difference to make good at once: none while it may be noise, most of it when it is certainly more. Not
// all of it: the others move, too.
double Agreement::Impl::FastGain(double value, double noise) const {
  const double times = std::abs(value) / (noise + 1);
  const auto n = static_cast<double>(voters.size());
  const double most = n / (n + 1);
  return std::min(most, kFastGain * std::clamp(times / 2 - 0.75, 0.0, 1.0) + std::clamp(times / 6 - 0.75, 0.0, 1.0));
}

// Young links are noisy, and so is what was learnt from them: it is forgotten soon, and the gain decays as they age.
double Agreement::Impl::YoungGain() const {
  return options.first_gain * std::min(kYoungGain, kYoungRounds * kYoungGain / (rounds + 1));
}

// What large parts of the fleet differ by dies away slowly, because only neighbours are averaged. While the fleet comes
// together each correction goes on with a share of the last one (Polyak's heavy ball); settled hosts do without.
double Agreement::Impl::Momentum() const {
  const double most = options.first_gain * kYoungGain;
  return kMomentum * std::clamp((YoungGain() - options.steady_gain) / (most - options.steady_gain), 0.0, 1.0);
}

double Agreement::Impl::ClampRate(double ppb) const {
  const double most = 2 * options.max_drift_ppb;
  return std::clamp(ppb, -most, most);
}

// By how much fleet time runs faster than clocks do. What all hosts share nobody sees in the others, so noise would
// carry it anywhere; but crystals are known to about a part in ten thousand, and the mean over a neighbourhood is not
// far from that of the next one. The median, because of liars.
double Agreement::Impl::ImplausibleRate(const std::vector<NeighbourView>& views) {
  scratch.clear();
  scratch.push_back(rate_ppb);
  for (size_t k = 0; k < voters.size(); ++k) {
    if (opinions[k].member) scratch.push_back(views[peers[voters[k]].view].claim.rate_ppb);
  }
  const double common = RobustSpread(scratch).median;
  return common - std::clamp(common, -kPlausiblePpb, kPlausiblePpb);
}

// Towards the others' rate: slowly while the difference may be noise, at once as far as it stands out of it: a crystal
// has jumped, or the air warms.
void Agreement::Impl::FollowRate(int f, double implausible_ppb) {
  const double rate = MeanRate(f);
  const bool changed = std::abs(rate) > std::max(kRateJumpPpb, 4 * rate_noise_ppb);
  // The noisier, the longer the mean: crystals do not wander by parts in a million.
  const double time_s = kRateTimeS * std::clamp(usual_rate_noise_ppb / kQuietRatePpb, 1.0, kMostRateTimes);
  const double slow = std::max(1 - std::exp(-passed_s / time_s), YoungGain());
  const double gain = std::max(slow, FastGain(rate, rate_noise_ppb));
  rate_step_ppb = gain * rate + Momentum() * rate_step_ppb;
  rate_ppb = ClampRate(rate_ppb + rate_step_ppb - passed_s / kPlausibleTimeS * implausible_ppb);
  bent = changed;
  if (changed) unsteady_ns = last_ns;
  change_ppb *= std::exp(-passed_s / kForgetChangeS);
  if (changed) {
    if (rounds >= kMatureRounds) change_ppb = std::max(change_ppb, std::abs(rate));  // young rates are noise
  } else if (passed_s > 0 && rounds >= kMatureRounds) {
    const double trend = std::clamp(gain * rate / passed_s, -kMostTrendPpbS, kMostTrendPpbS);
    trend_ppb_s += (trend - trend_ppb_s) * std::min(1.0, passed_s / kTrendTimeS);
  }
}

// Have most links of ours seen a clock change its rate just now? Then it was ours, or all have.
bool Agreement::Impl::OwnLinesBroke() const {
  int members = 0, broke = 0;
  for (const uint32_t v : voters) {
    members += peers[v].member;
    broke += peers[v].member && peers[v].line_broke;
  }
  return 2 * broke > members;
}

// Until a jump of clocks' rates showed, fleet time went with our clock and not with the fleet. What that made of it is
// no noise, and slewed away it would be wrong for as long again as the links need to show it: it is made good at once.
// Not all of it, as with the rate: the others make good theirs.
double Agreement::Impl::MakeGood(int64_t now_ns, double apart_ns) {
  if (bent && rounds >= kMatureRounds && merge_ns == 0 && OwnLinesBroke()) jumped_ns = now_ns;
  if (now_ns - jumped_ns > kMakeGoodNs) return 0;
  const double times = std::abs(apart_ns) / (MeanNoise() + 1);
  if (times < kClearNoises) return 0;
  const auto n = static_cast<double>(voters.size());
  const double ns = apart_ns * n / (n + 1);
  StepBy(ns);
  return ns;
}

// What links show of rates is some seconds old. Where our rate has a trend, what it will have become is gone ahead to.
double Agreement::Impl::SteadyTrend() const {
  const double clear = std::abs(trend_ppb_s) / kClearTrendPpbS - 1;
  const bool steady = rounds >= kMatureRounds && last_ns - unsteady_ns >= kSteadyNs;
  const double air = 2 - 2 * std::abs(trend_ppb_s) / kWarmestPpbS;
  return steady ? trend_ppb_s * std::clamp(std::min(clear, air), 0.0, 1.0) : 0;
}

void Agreement::Impl::Slew(double apart_ns) {
  // Noise is averaged over rounds; what stands out of it is the fleet that has not come together yet.
  const double gain = std::max({options.steady_gain, YoungGain(), FastGain(apart_ns, MeanNoise())});
  const auto most = static_cast<double>(options.max_slew_ppb);
  slew_ppb = std::clamp(apart_ns * gain / kRoundS + Momentum() * slew_ppb, -most, most);
  // Neighbours rely on our line until they hear the next one: it bends only so fast.
  // After a jump of our clock's rate they are told at once.
  const double bend = kBendPpbPerS * std::max(passed_s, kRoundS / 2);
  const double slope = rate_ppb + kLagSlopeS * SteadyTrend() + slew_ppb;
  time.slope_ppb = bent ? slope : std::clamp(slope, time.slope_ppb - bend, time.slope_ppb + bend);
  bent = false;
}

}  // namespace cw::sync
