// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/model_links.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace cw::sync::sim {
namespace {

constexpr uint64_t kNoiseStream = 4'000'000;
constexpr double kFreshNs = 1e9;          // an estimator says "free-running" after this …
constexpr double kModelStrayPpb = 1000;   // … and its error grows so fast
constexpr double kMaxDriftPpb = 200'000;  // its bound so
constexpr double kYoungS = 0.5;           // the age that LinkFigures' young figures are of
constexpr double kSettledS = 0.65;        // of a line that is fit for delays
constexpr double kOldS = 4;               // and that from which on an estimate is steady
constexpr double kWorstNs = 20'000, kWorstPpb = 300'000;

// Printed by `cw_clock_sim --calibrate --seeds 4`.
constexpr LinkFigures kKernelStamps[] = {
    {0.0, 19, 2.15, 7, 108, 1850, 0.05, 0.05, 0.42, 96, 310, 2180},
    {0.4, 19, 1.95, 6, 124, 2980, 0.05, 0.05, 0.37, 117, 360, 3320},
    {0.8, 35, 1.65, 9, 542, 7720, 0.05, 0.05, 0.28, 290, 830, 10060},
};
constexpr LinkFigures kNicStamps[] = {
    {0.0, 1.1, 1.7, 2, 38, 1580, 0.05, 0.05, 0.03, 4, 11, 1300},
    {0.4, 1.1, 1.9, 2, 44, 2960, 0.05, 0.05, 0.05, 4, 13, 2200},
    {0.8, 5.4, 1.55, 2, 457, 7610, 0.05, 0.05, 0.03, 10, 29, 6000},
};

// From a young figure at kYoungS to the steady one at kOldS, by a power of the age.
double Falling(double steady, double young, double age_s, double most) {
  if (age_s >= kOldS || young <= steady) return steady;
  const double power = std::log(young / steady) / std::log(kOldS / kYoungS);
  return std::min(most, young * std::pow(age_s / kYoungS, -power));
}

double Between(double a, double b, double x) { return a + x * (b - a); }

}  // namespace

LinkFigures FiguresAt(double load, bool nic_stamps) {
  const auto& table = nic_stamps ? kNicStamps : kKernelStamps;
  size_t i = 0;
  while (i + 2 < std::size(table) && table[i + 1].load < load) ++i;
  const LinkFigures &a = table[i], &b = table[i + 1];
  const double x = std::max(0.0, (load - a.load) / (b.load - a.load));
  return {load,
          Between(a.error_ns, b.error_ns, x),
          Between(a.tau_s, b.tau_s, x),
          Between(a.slope_ppb, b.slope_ppb, x),
          Between(a.est_ns, b.est_ns, x),
          Between(a.over_ns, b.over_ns, x),
          Between(a.start_s, b.start_s, x),
          Between(a.find_s, b.find_s, x),
          Between(a.lag_s2, b.lag_s2, x),
          Between(a.young_ns, b.young_ns, x),
          Between(a.young_ppb, b.young_ppb, x),
          Between(a.young_est_ns, b.young_est_ns, x)};
}

TieFigures FiguresOfTie() { return {15, 2.25}; }

ModelLinks::ModelLinks(Fleet& fleet) : fleet_(fleet), random_(fleet.seed, kNoiseStream) {
  const auto& link = fleet.scenario.link;
  links_.resize(fleet.links.size());
  for (size_t i = 0; i < links_.size(); ++i) {
    // The fastest of the paths decides, each way for itself.
    double forward = 1e18, reverse = 1e18;
    for (int p = 0; p < link.paths; ++p) {
      const double asymmetry = random_.Symmetric(link.asymmetry_ns);
      forward = std::min(forward, asymmetry / 2);
      reverse = std::min(reverse, -asymmetry / 2);
    }
    links_[i].half_asymmetry_ns = static_cast<float>((forward - reverse + fleet.links[i].asymmetry_ns) / 2);
    links_[i].noise = static_cast<float>(random_.Normal(1));
    links_[i].slope_noise = static_cast<float>(random_.Normal(1));
  }
  ties_.resize(fleet.hosts.size() * static_cast<size_t>(fleet.scenario.nics.per_host));
  Changed(0);
}

void ModelLinks::Changed(TrueNs t) {
  figures_ = FiguresAt(fleet_.load, fleet_.scenario.link.nic_stamps);
  figures_.error_ns /= 1 - std::min(0.9, fleet_.scenario.link.loss);
  for (size_t i = 0; i < links_.size(); ++i) {
    const bool connected = fleet_.Connected(fleet_.links[i]);
    if (connected && !links_[i].connected) {
      for (End& e : links_[i].end) e.since = t;
    }
    links_[i].connected = connected;
  }
}

void ModelLinks::Forget(uint32_t host, TrueNs t) {
  for (const Peer& p : fleet_.hosts[host].peers) {
    links_[p.link].end[p.end] = End();
    links_[p.link].end[p.end].since = t;
  }
}

void ModelLinks::AdvanceNoise(ModelLink& l, TrueNs t) {
  const double passed_s = static_cast<double>(t - l.at) / kSecond;
  if (passed_s <= 0) return;
  l.at = t;
  const double keep = std::exp(-passed_s / figures_.tau_s), fresh = std::sqrt(1 - keep * keep);
  l.noise = static_cast<float>(l.noise * keep + random_.Normal(fresh));
  l.slope_noise = static_cast<float>(l.slope_noise * keep + random_.Normal(fresh));
}

// A straight line through points of a clock whose rate changes ends beside the clock.
double ModelLinks::LagNs(const Host& us, const Host& peer, TrueNs t) const {
  if ((us.clock.Calm() && peer.clock.Calm()) || t < kSecond) return 0;
  const double change =
      (peer.clock.RatePpb(t) - peer.clock.RatePpb(t - kSecond)) - (us.clock.RatePpb(t) - us.clock.RatePpb(t - kSecond));
  return -change * figures_.lag_s2;
}

Estimate ModelLinks::Measured(const ModelLink& l, uint32_t link, int end, TrueNs t) {
  const Link& truth = fleet_.links[link];
  const Host &us = fleet_.hosts[truth.host[end]], &peer = fleet_.hosts[truth.host[1 - end]];
  const auto find = static_cast<TrueNs>(figures_.find_s * kSecond);
  const TrueNs stepped = std::max(us.clock.LastStepAt(t), peer.clock.LastStepAt(t));
  const double sign = end == 0 ? 1 : -1;
  Estimate e;
  e.epoch = static_cast<uint32_t>(us.clock.StepsUntil(t - find) + peer.clock.StepsUntil(t - find));
  if (us.clock.StepsWithin(t - find, t) < 0) return e;  // our clock was set back: the estimator starts afresh
  TrueNs young_since = l.end[end].since;
  if (stepped >= 0) young_since = std::max(young_since, stepped);
  const double age_s = std::max(0.1, static_cast<double>(t - young_since) / kSecond);
  const double offset_sd = Falling(figures_.error_ns, figures_.young_ns, age_s, kWorstNs);
  const double slope_sd = Falling(figures_.slope_ppb, figures_.young_ppb, age_s, kWorstPpb);
  const double est_ns = Falling(figures_.est_ns, figures_.young_est_ns, age_s, kWorstNs);
  double error = sign * (offset_sd * static_cast<double>(l.noise) + l.half_asymmetry_ns);
  const double added_ns = truth.AddedNs(t);
  if (added_ns != 0) error += (truth.added_towards == end ? -1 : 1) * added_ns / 2;
  error += LagNs(us, peer, t);
  error -= peer.clock.StepsWithin(t - find, t) - us.clock.StepsWithin(t - find, t);
  if (!ties_.empty()) {
    const int per_host = fleet_.scenario.nics.per_host;
    error += NicErrorNs(truth.host[1 - end], static_cast<int>(link) % per_host, t);
    error -= NicErrorNs(truth.host[end], static_cast<int>(link) % per_host, t);
  }
  e.state = SyncState::kSynchronised;
  e.offset_ns = std::llround(peer.clock.ErrorNs(t) - us.clock.ErrorNs(t) + error);
  e.slope_ppb = peer.clock.RatePpb(t) - us.clock.RatePpb(t) + sign * slope_sd * static_cast<double>(l.slope_noise);
  e.slope_error_ppb = slope_sd;
  e.settled = age_s > kSettledS;
  e.error_est_ns = std::llround(est_ns);
  e.min_rtt_ns = std::llround(2 * truth.base_ns + std::abs(added_ns));
  e.bound_ns = e.min_rtt_ns / 2 + std::llround(figures_.over_ns);
  e.age_ns = std::llround(kSecond / fleet_.scenario.link.probes_per_s * 2);
  return e;
}

Estimate ModelLinks::Remembered(const End& e, TrueNs t) const {
  Estimate out;
  if (e.at < 0) return out;
  const auto age = static_cast<double>(t - e.at);
  out.state = age > kFreshNs ? SyncState::kFreeRunning : SyncState::kSynchronised;
  out.offset_ns = std::llround(e.offset_ns + e.slope_ppb * 1e-9 * age);
  out.slope_ppb = e.slope_ppb;
  out.slope_error_ppb = kModelStrayPpb;
  out.age_ns = t - e.at;
  out.error_est_ns = std::llround(e.est_ns + kModelStrayPpb * 1e-9 * age);
  out.bound_ns = std::llround(e.bound_ns + (kMaxDriftPpb + std::abs(e.slope_ppb)) * 1e-9 * age);
  return out;
}

Estimate ModelLinks::View(uint32_t link, int end, TrueNs t) {
  ModelLink& l = links_[link];
  End& e = l.end[end];
  if (!l.connected) return Remembered(e, t);
  if (t - e.since < static_cast<TrueNs>(figures_.start_s * kSecond)) return Remembered(e, t);
  AdvanceNoise(l, t);
  const Estimate out = Measured(l, link, end, t);
  e.offset_ns = static_cast<double>(out.offset_ns);
  e.slope_ppb = static_cast<float>(out.slope_ppb);
  e.est_ns = static_cast<float>(out.error_est_ns);
  e.bound_ns = static_cast<float>(out.bound_ns);
  e.at = out.state == SyncState::kUnknown ? -1 : t;
  return out;
}

double ModelLinks::NicErrorNs(uint32_t host, int nic, TrueNs t) {
  const TieFigures figures = FiguresOfTie();
  Tie& tie = ties_[host * static_cast<size_t>(fleet_.scenario.nics.per_host) + static_cast<size_t>(nic)];
  const double t_s = static_cast<double>(t) / kSecond;
  const double keep = std::exp(-std::max(0.0, t_s - static_cast<double>(tie.at_s)) / figures.tau_s);
  tie.noise = static_cast<float>(tie.noise * keep + random_.Normal(std::sqrt(1 - keep * keep)));
  tie.at_s = static_cast<float>(t_s);
  return figures.error_ns * static_cast<double>(tie.noise);
}

std::unique_ptr<Links> MakeModelLinks(Fleet& fleet) { return std::make_unique<ModelLinks>(fleet); }

}  // namespace cw::sync::sim
