// SPDX-License-Identifier: Apache-2.0
#include "sync/sim/calibrate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sync/nic_clock.h"
#include "sync/sim/packet_links.h"

namespace cw::sync::sim {
namespace {

constexpr double kSeconds = 40, kSettled = 6;
constexpr TrueNs kEvery = kSecond / 20, kSendEvery = kSecond / 10;

Scenario TwoHosts(double load, bool nic_stamps) {
  Scenario s;
  s.name = s.about = "calibration";
  s.hosts = 2;
  s.link.queue.load = load;
  if (nic_stamps) s.link.UseNicStamps();
  return s;
}

double Median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

double Sd(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return v.empty() ? 0 : std::sqrt(sum / static_cast<double>(v.size()));
}

// What a standard deviation would be without the tails: two of three are smaller.
double Spread(std::vector<double> v) {
  if (v.empty()) return 0;
  for (double& x : v) x = std::abs(x);
  const auto k = static_cast<std::ptrdiff_t>(0.683 * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), v.begin() + k, v.end());
  return v[static_cast<size_t>(k)];
}

// The first lag at which the correlation is below 1/e.
double CorrelationTime(const std::vector<double>& v) {
  const double power = Sd(v) * Sd(v);
  for (size_t lag = 1; lag < v.size() / 2; ++lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < v.size(); ++i) sum += v[i] * v[i + lag];
    if (sum / static_cast<double>(v.size() - lag) < 0.37 * power) return static_cast<double>(lag * kEvery) / kSecond;
  }
  return static_cast<double>(kEvery) / kSecond * static_cast<double>(v.size());
}

struct Series {
  std::vector<double> error, slope_error, est, over;
  std::vector<double> young_error, young_slope, young_est;  // at half a second
  double start_s = kSeconds, find_s = kSeconds;
};

// One pair; with step_ns, the second clock is stepped in the middle.
Series Watch(const Scenario& s, uint64_t seed, double step_ns, double seconds = kSeconds) {
  Fleet fleet(s, seed);
  const auto step_at = static_cast<TrueNs>(kSeconds / 2 * kSecond);
  if (step_ns != 0) fleet.hosts[1].clock.Step(step_at, step_ns);
  PacketLinks links(fleet);
  Series out;
  for (TrueNs t = kEvery; t < seconds * kSecond; t += kEvery) {
    links.AdvanceTo(t);
    const Estimate e = links.View(0, 0, t);
    links.View(0, 1, t);
    if (t % kSendEvery == 0) {
      links.Send(0, 0, t);
      links.Send(0, 1, t);
    }
    const double at_s = static_cast<double>(t) / kSecond;
    if (e.state != SyncState::kSynchronised) continue;
    out.start_s = std::min(out.start_s, at_s);
    const double truth = fleet.hosts[1].clock.ErrorNs(t) - fleet.hosts[0].clock.ErrorNs(t);
    const double error = static_cast<double>(e.offset_ns) - truth;
    if (t > step_at && e.epoch > 0) out.find_s = std::min(out.find_s, at_s - kSeconds / 2);
    const double slope_error = e.slope_ppb - (fleet.hosts[1].clock.RatePpb(t) - fleet.hosts[0].clock.RatePpb(t));
    if (at_s > 0.44 && at_s < 0.56) {
      out.young_error.push_back(error);
      out.young_slope.push_back(slope_error);
      out.young_est.push_back(static_cast<double>(e.error_est_ns));
    }
    if (at_s < kSettled) continue;
    out.error.push_back(error);
    out.slope_error.push_back(slope_error);
    out.est.push_back(static_cast<double>(e.error_est_ns));
    out.over.push_back(static_cast<double>(e.bound_ns) - static_cast<double>(e.min_rtt_ns) / 2);
  }
  return out;
}

}  // namespace

LinkFigures Calibrate(double load, bool nic_stamps, int seeds) {
  Series all;
  std::vector<double> tau, start, find, lag;
  for (int k = 1; k <= 20 * seeds; ++k) {
    const Series young = Watch(TwoHosts(load, nic_stamps), static_cast<uint64_t>(k), 0, 0.6);
    all.young_error.insert(all.young_error.end(), young.young_error.begin(), young.young_error.end());
    all.young_slope.insert(all.young_slope.end(), young.young_slope.begin(), young.young_slope.end());
    all.young_est.insert(all.young_est.end(), young.young_est.begin(), young.young_est.end());
  }
  for (int k = 1; k <= seeds; ++k) {
    const auto seed = static_cast<uint64_t>(k);
    Scenario s = TwoHosts(load, nic_stamps);
    const Series one = Watch(s, seed, 0);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.error, one.error);
    append(all.slope_error, one.slope_error);
    append(all.est, one.est);
    append(all.over, one.over);
    tau.push_back(CorrelationTime(one.error));
    start.push_back(one.start_s);
    find.push_back(Watch(s, seed, 1e6).find_s);
    // The rate of one clock changes by 100 ppb/s: what does the estimate trail by?
    s.events.clear();
    Event ramp;
    ramp.kind = EventKind::kRamp;
    ramp.who.hosts = {1};
    ramp.ppb = 100 * kSeconds;
    ramp.seconds = kSeconds;
    s.events.push_back(ramp);
    const Series moved = Watch(s, seed, 0);
    double sum = 0;
    for (const double e : moved.error) sum -= e / 100;
    lag.push_back(moved.error.empty() ? 0 : sum / static_cast<double>(moved.error.size()));
  }
  return {load,
          Spread(all.error),
          Median(tau),
          Spread(all.slope_error),
          Median(all.est),
          Median(all.over),
          Median(start),
          Median(find),
          Median(lag),
          Spread(all.young_error),
          Spread(all.young_slope),
          Median(all.young_est)};
}

TieFigures CalibrateTie(int seeds) {
  std::vector<double> all, tau;
  for (int k = 1; k <= seeds; ++k) {
    Scenario s = TwoHosts(0, true);
    s.nics.per_host = 1;
    Fleet fleet(s, static_cast<uint64_t>(k));
    PacketLinks links(fleet);
    std::vector<double> one;
    for (TrueNs t = kEvery; t < kSeconds * kSecond; t += kEvery) {
      links.AdvanceTo(t);
      if (t > kSettled * kSecond) one.push_back(links.NicErrorNs(0, 0, t));
    }
    tau.push_back(CorrelationTime(one));
    all.insert(all.end(), one.begin(), one.end());
  }
  return {Sd(all), Median(tau)};
}

}  // namespace cw::sync::sim
