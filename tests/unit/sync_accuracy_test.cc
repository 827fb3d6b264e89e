// SPDX-License-Identifier: Apache-2.0
// How good one pair's estimate is, and whether it knows: statistics over many runs. CW_SYNC_LONG=1 takes a million
// checks and more (some minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "sync/pair_estimator.h"
#include "tests/unit/sync_channel_sim.h"

namespace cw::sync {
namespace {

bool Long() { return std::getenv("CW_SYNC_LONG") != nullptr; }
int Seeds() { return Long() ? 16 : 1; }
double Seconds() { return Long() ? 60 : 40; }
constexpr double kSettledS = 15;  // until then error_est allows for clocks that nobody knows yet

struct Load {
  double load;
  Traffic traffic;
};
constexpr Load kAccuracyLoads[] = {{0, Traffic::kPoisson},    {0.4, Traffic::kPoisson}, {0.4, Traffic::kBursts},
                                   {0.4, Traffic::kReacting}, {0.8, Traffic::kPoisson}, {0.8, Traffic::kBursts},
                                   {0.8, Traffic::kReacting}};

// A thousand probes per second each way.
ChannelSpec Budgeted(const Load& load, int slots, uint64_t seed) {
  ChannelSpec spec;
  spec.slots = slots;
  spec.round_ms = slots;
  spec.load = load.load;
  spec.traffic = load.traffic;
  spec.seconds = Seconds();
  spec.seed = seed;
  return spec;
}

template <typename Prepare>
Tally Over(const Prepare& prepare) {
  Tally tally;
  for (const Load& load : kAccuracyLoads) {
    for (const int slots : {1, 8}) {
      for (int seed = 1; seed <= Seeds(); ++seed) {
        ChannelSpec spec = Budgeted(load, slots, seed);
        prepare(spec);
        tally.Add(RunChannel(spec), kSettledS);
      }
    }
  }
  return tally;
}

void ExpectHonest(const Tally& t) {
  EXPECT_EQ(t.outside_bound, 0);
  EXPECT_EQ(t.not_synchronised, 0);
  EXPECT_GE(t.coverage(), 0.9999);
  EXPECT_LE(t.ErrorEst(0.5), 4 * t.Error(0.99));
}

TEST(PairAccuracy, SteadyDrift) {
  for (const Load& load : kAccuracyLoads) {
    Tally t;
    for (const int slots : {1, 8}) {
      for (int seed = 1; seed <= Seeds(); ++seed) {
        ChannelSpec spec = Budgeted(load, slots, seed);
        spec.theirs = SimClock({{0, 1e9, 100}});
        t.Add(RunChannel(spec), kSettledS);
      }
    }
    std::printf("load %.1f traffic %d: %s\n", load.load, static_cast<int>(load.traffic), t.Text().c_str());
    EXPECT_LE(t.Error(0.99), 60);
    ExpectHonest(t);
  }
}

// Crystals: random walk of the rate and temperature, several times what is usual.
TEST(PairAccuracy, WanderingCrystals) {
  const Tally t = Over([](ChannelSpec& spec) {
    spec.theirs = SimClock({{0, -1e9, -30}});
    spec.theirs.wander_ppb = spec.ours.wander_ppb = 5;
    spec.theirs.swing_ppb = 500;
    spec.theirs.seed = spec.seed;
    spec.ours.seed = spec.seed + 100;
  });
  std::printf("%s\n", t.Text().c_str());
  EXPECT_LE(t.Error(0.99), 90);
  ExpectHonest(t);
}

// Rates of both clocks jump to anything within ±100 ppm, one of them every ten seconds. Until a jump has shown nobody
// can know, so this is about how soon.
TEST(PairAccuracy, RatesThatJump) {
  const Tally t = Over([](ChannelSpec& spec) {
    spec.theirs = SimClock(PiecewiseDrift(1e9, 100, 20, Seconds(), spec.seed * 2));
    spec.ours = SimClock(PiecewiseDrift(0, 100, 20, Seconds(), spec.seed * 2 + 1));
  });
  std::printf("%s\n", t.Text().c_str());
  EXPECT_LE(t.Error(0.5), 30);
  EXPECT_LE(t.Error(0.99), 2'000);
  EXPECT_EQ(t.outside_bound, 0);
  EXPECT_GE(t.coverage(), 0.995);
  EXPECT_LE(t.ErrorEst(0.5), 4 * t.Error(0.99));
}

TEST(PairAccuracy, StampsAndPathsOfOtherKinds) {
  struct Case {
    const char* name;
    void (*prepare)(ChannelSpec&);
  };
  const Case cases[] = {
      {"batches", [](ChannelSpec& s) { s.noise.batch_share = 0.5; }},
      {"early stamps", [](ChannelSpec& s) { s.noise.early_share = 0.01, s.noise.early_ns = 200; }},
      {"bistable", [](ChannelSpec& s) { s.noise.shift_ns = 100; }},
      {"slots of other lengths", [](ChannelSpec& s) { s.slot_spread_ns = 3000; }},
      {"low points without replies", [](ChannelSpec& s) { s.remote_trips = false; }},
  };
  for (const Case& c : cases) {
    Tally t;
    for (const double load : {0.0, 0.4, 0.8}) {
      for (int seed = 1; seed <= Seeds(); ++seed) {
        ChannelSpec spec = Budgeted({load, Traffic::kPoisson}, 4, seed);
        spec.theirs = SimClock({{0, 1e9, 50}});
        c.prepare(spec);
        t.Add(RunChannel(spec), kSettledS);
      }
    }
    std::printf("%s: %s\n", c.name, t.Text().c_str());
    EXPECT_LE(t.Error(0.99), 150) << c.name;
    EXPECT_EQ(t.outside_bound, 0) << c.name;
    EXPECT_GE(t.coverage(), 0.99) << c.name;
  }
}

TEST(PairAccuracy, SettlesWithinThreeSeconds) {
  for (const Load& load : kAccuracyLoads) {
    for (int seed = 1; seed <= 3; ++seed) {
      ChannelSpec spec = Budgeted(load, 8, seed);
      spec.seconds = 20;
      spec.theirs = SimClock({{0, 1e9, 80}});
      const auto run = RunChannel(spec);
      Tally early, steady;
      for (const Checked& c : run) {
        if (c.true_s >= 3 && c.true_s < 5) early.Add({c}, 0);
      }
      steady.Add(run, 10);
      EXPECT_LE(early.Error(0.9), 3 * std::max<int64_t>(steady.Error(0.99), 15)) << load.load << " seed " << seed;
    }
  }
}

// Whatever happens, the truth stays within bound; after a step, as soon as it was found.
TEST(PairAccuracy, BoundHoldsThroughEverything) {
  int64_t checks = 0;
  for (int seed = 1; seed <= 4 * Seeds(); ++seed) {
    for (const Load& load : kAccuracyLoads) {
      ChannelSpec spec = Budgeted(load, 1 + seed % 8, seed);
      spec.seconds = 30;
      spec.theirs = SimClock(PiecewiseDrift(1e9, 100, 5, 30, seed));
      spec.ours = SimClock(PiecewiseDrift(0, 100, 5, 30, seed + 50));
      spec.ours.wander_ppb = 20;
      spec.reverse_base_ns = spec.forward_base_ns + 700.0 * (seed % 5);
      if (seed % 3 == 0) spec.forward_lost = [](double t) { return t > 10 && t < 14; };
      if (seed % 3 == 1) spec.reverse_lost = [](double t) { return t > 12 && t < 25; };
      if (seed % 4 == 2) spec.asleep = [](double t) { return t > 16 && t < 19; };
      const double step_s = 20;
      const double steps[] = {1e9, -1e6, 3e8, -1e9, 2e5};
      auto& changes = seed % 2 == 0 ? spec.theirs.changes : spec.ours.changes;
      for (auto& c : changes) {
        if (c.at_s > step_s) {
          c.step_ns += steps[seed % 5];
          break;
        }
      }
      double stepped_s = 1e9;
      for (const auto& c : changes) {
        if (c.at_s > step_s && c.step_ns != 0) stepped_s = std::min(stepped_s, c.at_s);
      }
      for (const Checked& c : RunChannel(spec)) {
        const double after = c.true_s - stepped_s;
        const bool blind = spec.reverse_lost && c.true_s > 12 && c.true_s < 26;  // nothing can be found then
        if (after >= 0 && (after < 1 || blind)) continue;
        if (after >= 0 && spec.reverse_lost && stepped_s < 25) continue;
        ++checks;
        ASSERT_LE(std::llabs(c.error_ns), c.estimate.bound_ns)
            << "at " << c.true_s << " s, load " << load.load << " traffic " << static_cast<int>(load.traffic)
            << " seed " << seed << " stepped " << stepped_s;
      }
    }
  }
  std::printf("%d checks\n", static_cast<int>(checks));
}

// Our host sleeps for ten seconds: its clock stands still, and whoever wakes it must say so.
TEST(PairAccuracy, AfterASleepNothingIsKnownUntilItIsMeasuredAgain) {
  PairEstimator e;
  std::mt19937_64 random(1);
  const auto noise = [&] { return std::exponential_distribution<double>(5e-3)(random); };
  double slept_ns = 0;
  const auto probe = [&](double true_ns) {
    const double t2 = true_ns + 5000 + noise(), t4 = t2 + 5000 + noise();
    e.AddProbe(std::llround(true_ns - slept_ns), std::llround(t2), std::llround(t2), std::llround(t4 - slept_ns));
    return e.At(std::llround(t4 - slept_ns));
  };
  for (int ms = 0; ms < 3000; ++ms) probe(1e9 + ms * 1e6);
  slept_ns = 10e9;
  e.Reset();
  EXPECT_EQ(e.At(4'000'100'000).state, SyncState::kUnknown);
  for (int ms = 0; ms < 1000; ++ms) {
    const Estimate now = probe(14e9 + ms * 1e6);
    if (now.state == SyncState::kUnknown) {
      EXPECT_LE(ms, 100);
      continue;
    }
    EXPECT_LE(std::llabs(now.offset_ns - 10'000'000'000), now.bound_ns);
    EXPECT_EQ(now.epoch, 1u);
  }
}

#ifdef __SANITIZE_ADDRESS__
constexpr double kSlowdown = 10;
#else
constexpr double kSlowdown = 1;
#endif

// 1 % of a core for 16 peers at a thousand probes per second each way; ten times that fails.
TEST(PairAccuracy, CostsLittle) {
  PairEstimator e;
  std::mt19937_64 random(1);
  const auto noise = [&] { return std::exponential_distribution<double>(1e-3)(random); };
  std::vector<Trip> trips;
  for (int ms = 0; ms < 20'000; ++ms) {
    const double t1 = 1e9 + ms * 1e6, t2 = t1 + 5000 + noise(), t4 = t2 + 5000 + noise();
    trips.push_back({std::llround(t1), std::llround(t2), std::llround(t2), std::llround(t4)});
  }
  int probes = 0;
  const std::clock_t start = std::clock();
  for (const Trip& t : trips) {
    e.AddProbe(t.t1_ns, t.t2_ns, t.t3_ns, t.t4_ns);
    if (++probes % 10 == 0) e.At(t.t4_ns);
  }
  const double busy_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.0f us per second and peer\n", busy_s / 20 * 1e6);
  EXPECT_LE(busy_s / 20 * 16, 0.1 * kSlowdown);
}

}  // namespace
}  // namespace cw::sync
