// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "sync/clock_domain.h"
#include "sync/clock_domain_reader.h"
#include "sync/pair_estimator.h"

namespace cw::sync {
namespace {

constexpr double kStartNs = 100e9;

// A clock that is slewed against a steady one: B is the steady one, A the slewed.
struct Slewed {
  struct Change {
    double at_ns;
    double ppm;
    double step_ns = 0;
  };
  std::vector<Change> changes;

  double ErrorNs(double b_ns) const {
    double error = 0, ppm = 0, since = kStartNs;
    for (const Change& c : changes) {
      if (c.at_ns > b_ns) break;
      error += (c.at_ns - since) * ppm * 1e-6 + c.step_ns;
      ppm = c.ppm;
      since = c.at_ns;
    }
    return error + (b_ns - since) * ppm * 1e-6;
  }
  int64_t A(double b_ns) const { return static_cast<int64_t>(std::floor(b_ns + ErrorNs(b_ns))); }
};

// A paired read at b_ns: each reading takes some 20 ns, one in a hundred is interrupted.
class Reader {
 public:
  explicit Reader(uint64_t seed) : random_(seed) {}
  bool Add(ClockDomain& domain, const Slewed& clock, double b_ns) {
    std::exponential_distribution<double> more(0.1);
    const auto cost = [&] { return 15 + more(random_) + (random_() % 100 == 0 ? 3e4 * more(random_) : 0); };
    const double before = b_ns - cost(), after = b_ns + cost();
    return domain.AddPair(clock.A(before), static_cast<int64_t>(b_ns), clock.A(after));
  }

 private:
  std::mt19937_64 random_;
};

struct Worst {
  int64_t error_ns = 0, outside_bound = 0, outside_error = 0, checks = 0;
};

// Reads every read_ms; stamps that fall in between are converted after the next read, as an agent does.
Worst Follow(const Slewed& clock, double seconds, double read_ms, uint64_t seed, ClockDomain& domain) {
  Reader reader(seed);
  std::mt19937_64 random(seed + 1);
  Worst worst;
  for (double b = kStartNs; b < kStartNs + seconds * 1e9; b += read_ms * 1e6) {
    reader.Add(domain, clock, b);
    if (b < kStartNs + 10 * read_ms * 1e6) continue;
    for (int i = 0; i < 4; ++i) {
      const double then = b - read_ms * 1e6 * 1.5 * static_cast<double>(random() % 1000) / 1000;
      const auto got = domain.ToB(clock.A(then));
      if (!got) continue;
      const int64_t error = std::llabs(got->ns - static_cast<int64_t>(std::floor(then)));
      worst.error_ns = std::max(worst.error_ns, error);
      worst.outside_bound += error > got->bound_ns;
      worst.outside_error += error > got->error_ns;
      ++worst.checks;
    }
  }
  return worst;
}

TEST(ClockDomain, SteadyRateIsKnownWithinAFewNanoseconds) {
  ClockDomain domain;
  const Slewed clock{{{kStartNs, 37.5}}};
  const Worst w = Follow(clock, 20, 10, 1, domain);
  EXPECT_LE(w.error_ns, 20);
  EXPECT_EQ(w.outside_error, 0);
  EXPECT_EQ(w.outside_bound, 0);
  EXPECT_EQ(domain.changes(), 0u);
  EXPECT_NEAR(domain.slew_ppb(), -37'500, 50);
}

// What an NTP client does: a new frequency every so often, up to 500 ppm.
TEST(ClockDomain, RepeatedSlewsAreFollowedAndNeverOutsideTheBound) {
  for (const double read_ms : {1.0, 10.0, 100.0}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      std::mt19937_64 random(seed);
      Slewed clock;
      for (double t = kStartNs; t < kStartNs + 60e9; t += 1e8 + static_cast<double>(random() % 4'000'000'000)) {
        clock.changes.push_back({t, static_cast<double>(random() % 1001) - 500});
      }
      ClockDomain domain;
      const Worst w = Follow(clock, 60, read_ms, seed, domain);
      EXPECT_EQ(w.outside_bound, 0) << read_ms;
      // A change is not seen before the next read: there are some 28 a minute.
      const double missed = 0.005 + 1.5 * 28 * read_ms / 60e3;
      EXPECT_LE(static_cast<double>(w.outside_error), missed * static_cast<double>(w.checks)) << read_ms;
      EXPECT_LE(static_cast<double>(w.error_ns), 100 + 500 * read_ms) << read_ms;
      EXPECT_EQ(domain.steps(), 0u);
    }
  }
}

TEST(ClockDomain, AStepIsASegmentOfItsOwn) {
  ClockDomain domain;
  const Slewed clock{{{kStartNs, 10}, {kStartNs + 5e9, 10, 3e8}}};
  Follow(clock, 10, 10, 1, domain);
  EXPECT_EQ(domain.steps(), 1u);
  const auto now = domain.ToB(clock.A(kStartNs + 9.9e9));
  ASSERT_TRUE(now);
  EXPECT_NEAR(static_cast<double>(now->ns), kStartNs + 9.9e9, 50);
}

TEST(ClockDomain, AClockSetBackIsFoundAndForgotten) {
  ClockDomain domain;
  const Slewed clock{{{kStartNs, 10}, {kStartNs + 5e9, 10, -3e8}}};
  Follow(clock, 10, 10, 1, domain);
  EXPECT_EQ(domain.steps(), 1u);
  EXPECT_NEAR(static_cast<double>(domain.ToB(clock.A(kStartNs + 9.9e9))->ns), kStartNs + 9.9e9, 50);
}

TEST(ClockDomain, ConvertsBack) {
  ClockDomain domain;
  const Slewed clock{{{kStartNs, -400}, {kStartNs + 3e9, 450}}};
  Follow(clock, 6, 10, 1, domain);
  for (const double at : {1e9, 2.99e9, 3.01e9, 5e9, 5.99e9}) {
    const auto a = domain.ToA(static_cast<int64_t>(kStartNs + at));
    ASSERT_TRUE(a);
    EXPECT_NEAR(static_cast<double>(a->ns), static_cast<double>(clock.A(kStartNs + at)), 100) << at;
    EXPECT_NEAR(static_cast<double>(domain.ToB(a->ns)->ns), kStartNs + at, 1.5) << at;
  }
}

TEST(ClockDomain, WideAndImpossibleReadsAreNotUsed) {
  ClockDomain domain;
  EXPECT_FALSE(domain.AddPair(1000, 5000, 900));
  EXPECT_FALSE(domain.AddPair(1000, 5000, 1'000'000));
  EXPECT_FALSE(domain.ToB(1000));
  EXPECT_FALSE(domain.ToA(1000));
  EXPECT_TRUE(domain.AddPair(1000, 5000, 1040));
  ASSERT_TRUE(domain.ToB(1020));
  EXPECT_NEAR(static_cast<double>(domain.ToB(1020)->ns), 5000, 22);
  EXPECT_GE(domain.ToB(1020)->error_ns, 20);
}

// The stamps of both hosts are of clocks that NTP slews; their steady clocks differ by 1 s and 12 ppm.
TEST(ClockDomain, SlewDoesNotLookLikeDrift) {
  std::mt19937_64 random(3);
  Slewed ours, theirs;
  for (double t = kStartNs; t < kStartNs + 20e9; t += 1.7e9) {
    ours.changes.push_back({t, static_cast<double>(random() % 1001) - 500});
    theirs.changes.push_back({t + 0.6e9, static_cast<double>(random() % 1001) - 500});
  }
  const auto their_raw = [](double t) { return kStartNs + (t - kStartNs) * (1 + 12e-6) + 1e9; };
  ClockDomain our_domain, their_domain;
  Reader reader(1);
  PairEstimator e;
  int64_t worst = 0, outside = 0;
  std::exponential_distribution<double> noise(1.0 / 200);
  for (int ms = 0; ms < 20'000; ++ms) {
    const double t1 = kStartNs + ms * 1e6 + 1e5, t2 = t1 + 5000 + noise(random), t4 = t2 + 5200 + noise(random);
    reader.Add(our_domain, ours, t1 + 5e5);
    reader.Add(their_domain, theirs, their_raw(t1 + 5e5));
    if (ms < 20) continue;
    const auto our = [&](double t) { return our_domain.ToB(ours.A(t)).value().ns; };
    const auto their = [&](double t) { return their_domain.ToB(theirs.A(their_raw(t))).value().ns; };
    e.AddProbe(our(t1), their(t2), their(t2 + 200), our(t4));
    if (ms % 10 != 9) continue;
    const Estimate now = e.At(static_cast<int64_t>(t1 + 5e5));
    if (ms < 2000) continue;
    const auto error = std::llabs(now.offset_ns - std::llround(their_raw(t1 + 5e5) - (t1 + 5e5)));
    worst = std::max<int64_t>(worst, error);
    outside += error > now.bound_ns;
    EXPECT_NEAR(now.slope_ppb, 12'000, 1'000);
  }
  EXPECT_LE(worst, 400);  // at 500 ppm an unconverted stamp would be off by hundreds of microseconds
  EXPECT_EQ(outside, 0);
  EXPECT_EQ(e.At(0).epoch, 0u);
  EXPECT_GT(our_domain.changes(), 8u);
}

// A clip costs as much as the polygon has corners: many reads in a short time must not make many of them.
TEST(Corridor, StaysSmall) {
  std::mt19937_64 random(5);
  Corridor corridor(-100, 100, 0.2);
  for (int i = 0; i < 100'000; ++i) {
    const double x = 300.0 * i, truth = std::floor(x * 20e-6);
    EXPECT_TRUE(corridor.Clip(x, truth - 20 - static_cast<double>(random() % 40), x,
                              truth + 20 + static_cast<double>(random() % 40)));
  }
  EXPECT_LE(corridor.corners(), 100u);
  EXPECT_NEAR(corridor.slope().low, 20e-6, 2e-6);
  EXPECT_NEAR(corridor.slope().high, 20e-6, 2e-6);
}

TEST(ClockDomainReader, ReadsTheRealClocks) {
  ClockDomain domain;
  for (int i = 0; i < 2000; ++i) {
    const auto read = ReadPaired(CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW);
    ASSERT_TRUE(read);
    EXPECT_LE(read->a_before_ns, read->a_after_ns);
    domain.AddPair(read->a_before_ns, read->b_ns, read->a_after_ns);
  }
  const auto later = ReadPaired(CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, 20);
  ASSERT_TRUE(later);
  const auto b = domain.ToB(later->a_before_ns);
  ASSERT_TRUE(b);
  EXPECT_EQ(domain.steps(), 0u);
  EXPECT_LE(std::llabs(b->ns - later->b_ns), b->bound_ns + (later->a_after_ns - later->a_before_ns));
  EXPECT_LE(std::abs(domain.slew_ppb()), 1'000'000);
}

TEST(ClockDomainReader, SaysThatAClockIsMissing) { EXPECT_FALSE(ReadPaired(CLOCK_MONOTONIC, 12345)); }

}  // namespace
}  // namespace cw::sync
