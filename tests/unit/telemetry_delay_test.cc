// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/unit/time_units.h"
#include "userspace/telemetry/path_delay.h"
#include "userspace/telemetry/sketch.h"

namespace cw::telemetry {
namespace {

constexpr double kError = 0.022;

double TrueQuantile(std::vector<int64_t> v, double q) {
  std::sort(v.begin(), v.end());
  const auto rank = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * static_cast<double>(v.size()))));
  return static_cast<double>(v[static_cast<size_t>(rank - 1)]);
}

std::vector<int64_t> Delays(int n, double sigma, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> delay(std::log(20e3), sigma);
  std::vector<int64_t> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<int64_t>(delay(random)) + 1);
  return v;
}

TEST(Sketch, QuantilesAreWithinTheirErrorForManyShapes) {
  for (const double sigma : {0.01, 0.5, 2.0, 5.0}) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const auto values = Delays(5000, sigma, seed);
      Sketch s;
      for (const int64_t v : values) s.Add(v);
      for (const double q : {0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
        const double truth = TrueQuantile(values, q);
        EXPECT_NEAR(s.QuantileNs(q), truth, kError * truth) << "sigma " << sigma << " q " << q;
      }
    }
  }
}

TEST(Sketch, EveryValueIsWithinTheErrorOfItsBucket) {
  for (int64_t v = 1; v < 4'000'000'000'000; v += 1 + v / 97) {
    Sketch s;  // neighbours at both ends, so that minimum and maximum do not help
    s.Add(1);
    s.Add(v);
    s.Add(v);
    s.Add(INT64_MAX / 4);
    ASSERT_NEAR(s.QuantileNs(0.5), static_cast<double>(v), kError * static_cast<double>(v)) << v;
  }
}

TEST(Sketch, MinMaxSumAndCountAreExact) {
  const auto values = Delays(1000, 1, 7);
  Sketch s;
  double sum = 0;
  for (const int64_t v : values) {
    s.Add(v);
    sum += static_cast<double>(v);
  }
  EXPECT_EQ(s.count(), 1000u);
  EXPECT_EQ(s.min_ns(), *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(s.max_ns(), *std::max_element(values.begin(), values.end()));
  EXPECT_NEAR(s.sum_ns(), sum, 1);
}

TEST(Sketch, MergingIsTheSameAsAddingToOne) {
  Sketch whole, merged;
  for (uint64_t part = 1; part <= 8; ++part) {
    Sketch s;
    for (const int64_t v : Delays(500, 1.5, part)) {
      s.Add(v);
      whole.Add(v);
    }
    merged.Merge(s);
  }
  EXPECT_EQ(merged.count(), whole.count());
  EXPECT_EQ(merged.min_ns(), whole.min_ns());
  EXPECT_EQ(merged.max_ns(), whole.max_ns());
  for (double q = 0; q <= 1; q += 0.01) EXPECT_EQ(merged.QuantileNs(q), whole.QuantileNs(q));
  Sketch empty;
  merged.Merge(empty);
  EXPECT_EQ(merged.count(), whole.count());
}

TEST(Sketch, NegativeDelaysCountButAreNoDelays) {
  Sketch s;
  for (const int64_t v : {-300, -20, 0, 100, 1'000}) s.Add(v);
  EXPECT_EQ(s.count(), 5u);
  EXPECT_EQ(s.min_ns(), -300);
  EXPECT_EQ(s.QuantileNs(0), -300);
  EXPECT_EQ(s.QuantileNs(0.5), 0);
  EXPECT_NEAR(s.QuantileNs(0.8), 100, 2.2);
}

TEST(Sketch, AboveIsTheQueueingDelay) {
  const int64_t base = 5'000;
  Sketch s;
  std::vector<int64_t> queueing;
  for (const int64_t v : Delays(5000, 1, 3)) {
    s.Add(base + v);
    queueing.push_back(v);
  }
  const Sketch q = s.Above(base);
  EXPECT_EQ(q.count(), 5000u);
  for (const double p : {0.1, 0.5, 0.99}) {
    const double truth = TrueQuantile(queueing, p);
    EXPECT_NEAR(q.QuantileNs(p), truth, 0.022 * (truth + base) + 0.022 * truth) << p;
  }
  EXPECT_GE(s.Above(1'000'000'000).min_ns(), 0);
}

TEST(Sketch, ClearsAndStartsAgain) {
  Sketch s;
  s.Add(5);
  s.Clear();
  EXPECT_EQ(s.count(), 0u);
  EXPECT_EQ(s.QuantileNs(0.5), 0);
  s.Add(70);
  EXPECT_EQ(s.min_ns(), 70);
}

// Ten probes a second for two minutes: what an idle path costs.
TEST(PathDelay, AllPathsOfALargeHostFitIntoAFewMegabytes) {
  std::mt19937_64 random(1);
  size_t largest = 0;
  for (int path = 0; path < 20; ++path) {
    PathDelay d;
    std::exponential_distribution<double> noise(1.0 / 400);
    for (int64_t t = 0; t < 120 * kSecond; t += 100 * kMs) {
      d.AddProbe(t, 5'200 + static_cast<int64_t>(noise(random)) + (random() % 100 == 0 ? 50'000 : 0));
      if (t % kSecond == 0) d.AddSent(t, 10);
    }
    largest = std::max(largest, d.MemoryBytes());
  }
  std::printf("one direction of an idle path: %zu bytes\n", largest);
  EXPECT_LE(largest, 3000u);
  PathDelay busy;
  std::exponential_distribution<double> noise(1.0 / 400e3);
  for (int64_t t = 0; t < 120 * kSecond; t += kMs) busy.AddProbe(t, 5'200 + static_cast<int64_t>(noise(random)));
  std::printf("one direction of a busy path: %zu bytes\n", busy.MemoryBytes());
  EXPECT_LE(busy.MemoryBytes(), 40'000u);
}

TEST(PathDelay, WindowsHoldWhatTheirNamesSay) {
  PathDelay d;
  // 70 s: the delay in second s is 10 µs + s.
  for (int64_t t = 0; t < 70 * kSecond; t += 10 * kMs) d.AddProbe(t, 10'000 + t / kSecond);
  const int64_t now = 70 * kSecond - kMs;
  for (const int seconds : kWindowsS) {
    const DelayWindow w = d.Window(now, seconds);
    EXPECT_LE(w.owd.count(), 100u * seconds);
    EXPECT_GE(w.owd.count(), seconds == 60 ? 5100u : 90u * seconds);
    EXPECT_GE(w.owd.min_ns(), 10'000 + 70 - seconds);
    EXPECT_EQ(w.owd.max_ns(), 10'069);
  }
  EXPECT_EQ(d.BaseNs(), 10'000);
  d.AddProbe(71 * kSecond, 12'000);
  EXPECT_EQ(d.BaseNs(), 10'010);
}

TEST(PathDelay, BaseFollowsTheWindowAndStartsAfresh) {
  PathDelay d;
  EXPECT_EQ(d.BaseNs(), INT64_MAX);
  d.AddProbe(0, 3'000);
  for (int64_t t = kSecond; t < 55 * kSecond; t += 100 * kMs) d.AddProbe(t, 5'000);
  EXPECT_EQ(d.BaseNs(), 3'000);
  for (int64_t t = 55 * kSecond; t < 90 * kSecond; t += 100 * kMs) d.AddProbe(t, 5'000);
  EXPECT_EQ(d.BaseNs(), 5'000);
  d.ForgetDelays();
  EXPECT_EQ(d.BaseNs(), INT64_MAX);
  EXPECT_EQ(d.Window(90 * kSecond, 60).owd.count(), 0u);
  d.AddProbe(90 * kSecond, 9'000);
  EXPECT_EQ(d.BaseNs(), 9'000);
}

TEST(PathDelay, QueueingIsWhatIsAboveBase) {
  PathDelay d;
  for (int64_t i = 0; i < 1000; ++i) d.AddProbe(i * kMs, i % 10 == 0 ? 5'000 : 105'000);
  const DelayWindow w = d.Window(kSecond - kMs, 1);
  EXPECT_NEAR(w.queueing.QuantileNs(0.5), 100'000, 0.05 * 100'000);
  EXPECT_EQ(w.queueing.min_ns(), 0);
}

TEST(PathDelay, JitterIsTheMeanStep) {
  PathDelay d;
  for (int64_t i = 0; i < 1000; ++i) d.AddProbe(i * kMs, i % 2 == 0 ? 5'000 : 6'000);
  EXPECT_DOUBLE_EQ(d.Window(kSecond - kMs, 1).jitter_ns, 1'000);
}

TEST(PathDelay, LossIsTheShareOfTheProbesWhoseFateIsKnown) {
  PathDelay d;
  for (int64_t i = 0; i < 20'000; ++i) {
    // From 10 s on a tenth is lost; of every second probe nothing becomes known.
    if (i % 2 == 0) d.AddFates(i * kMs, 1, i >= 10'000 && i % 20 == 0);
    if (i % 1000 == 999) d.AddSent(i * kMs + kMs, 1000);
  }
  const int64_t now = 20 * kSecond - kMs;
  EXPECT_NEAR(d.Window(now, 1).Loss(), 0.1, 0.002);
  EXPECT_NEAR(d.Window(now, 10).Loss(), 0.1, 0.002);
  EXPECT_NEAR(d.Window(now, 60).Loss(), 0.05, 0.002);
  EXPECT_EQ(d.Window(20 * kSecond, 10).sent, 10'000u);
  EXPECT_NEAR(static_cast<double>(d.Window(now, 10).known), 5'000, 500);
}

// The agent's ring overflowed, or the peer is silent: that says nothing of the path.
TEST(PathDelay, WhatIsNotKnownIsNoLoss) {
  PathDelay d;
  for (int64_t s = 1; s <= 30; ++s) d.AddSent(s * kSecond, 1000);
  EXPECT_EQ(d.Window(30 * kSecond + kMs, 10).Loss(), 0);
  EXPECT_EQ(d.Window(30 * kSecond + kMs, 10).known, 0u);
  EXPECT_EQ(d.Window(30 * kSecond + kMs, 10).sent, 10'000u);
}

TEST(PathDelay, ARunOfLossesIsAnOutage) {
  PathDelay d;
  for (int64_t i = 0; i < 100; ++i) d.AddFates(i * kMs, 1, i >= 50 && i < 60);
  for (int64_t i = 100; i < 200; ++i) d.AddFates(i * kMs, 1, i % 4 == 0);
  d.AddFates(300 * kMs, 40, 40);
  const DelayWindow w = d.Window(kSecond - kMs, 1);
  EXPECT_EQ(w.known, 240u);
  EXPECT_EQ(w.lost, 10u + 25u + 40u);
  EXPECT_EQ(w.outage, 10u + 40u);
}

TEST(PathDelay, APathThatBeginsHasLostNothing) {
  PathDelay d;
  d.AddFates(kSecond, 10, 10);  // of another path
  d.Restart(kSecond + 700 * kMs);
  d.AddFates(2 * kSecond, 3, 0);
  EXPECT_EQ(d.Window(4 * kSecond + kMs, 10).Loss(), 0);
}

TEST(PathDelay, AClockThatIsSetLosesNoProbe) {
  PathDelay d;
  for (int64_t i = 0; i < 5000; ++i) {
    if (i == 2500) d.ForgetDelays();
    d.AddProbe(i * kMs, 5'000);
    d.AddFates(i * kMs, 1, 0);
  }
  const DelayWindow w = d.Window(5 * kSecond - kMs, 10);
  EXPECT_EQ(w.Loss(), 0);
  EXPECT_EQ(w.known, 5000u);
  EXPECT_EQ(w.owd.count(), 2500u);
}

TEST(FormatOwd, NeverClaimsMoreThanTheClockKnows) {
  EXPECT_EQ(FormatOwd(12'345, 100), "12.3 µs");
  EXPECT_EQ(FormatOwd(5'236, 100), "5.24 µs");
  EXPECT_EQ(FormatOwd(399, 400), "< 0.40 µs");
  EXPECT_EQ(FormatOwd(-5'000, 400), "< 0.40 µs");
  EXPECT_EQ(FormatOwd(0, 0), "< 0.01 µs");
  EXPECT_EQ(FormatOwd(1'234'567, 400), "1.23 ms");
  EXPECT_EQ(FormatOwd(999'600, 400), "1.00 ms");
  EXPECT_EQ(FormatOwd(2.5e9, 400), "2.50 s");
}

}  // namespace
}  // namespace cw::telemetry
