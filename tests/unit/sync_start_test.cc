// SPDX-License-Identifier: Apache-2.0
// The first seconds of a pair: what it says of itself before it knows much.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "sync/pair_estimator.h"
#include "tests/unit/sync_channel_sim.h"

namespace cw::sync {
namespace {

constexpr int kStartSeeds = 12;
constexpr double kLoads[] = {0, 0.4, 0.8};

struct Cadence {
  const char* name;
  double round_ms;  // of eight slots
};
constexpr Cadence kCadences[] = {{"each millisecond", 1}, {"budgeted", 8}, {"idle", 100}};

ChannelSpec Starting(const Cadence& cadence, double load, int seed) {
  ChannelSpec spec;
  spec.round_ms = cadence.round_ms;
  spec.load = load;
  spec.seed = static_cast<uint64_t>(seed);
  spec.seconds = 6;
  const double drift = seed % 2 == 0 ? 50 : -50;
  spec.theirs = SimClock({{0, seed % 4 < 2 ? 1e9 : -1e9, drift}});
  return spec;
}

// Until it has settled nobody should take delays by it, and error_est says why; from then on it is good.
TEST(PairStart, SaysFromWhenOnItIsGoodAndIsHonestBefore) {
  for (const Cadence& cadence : kCadences) {
    Tally young, settled;
    double settled_s = 0;
    for (const double load : kLoads) {
      for (int seed = 1; seed <= kStartSeeds; ++seed) {
        double first_s = 0;
        for (const Checked& c : RunChannel(Starting(cadence, load, seed))) {
          (c.estimate.settled ? settled : young).Add({c}, 0);
          if (c.estimate.settled && first_s == 0) first_s = c.true_s;
        }
        EXPECT_GT(first_s, 0) << cadence.name << " never settles, seed " << seed;
        settled_s = std::max(settled_s, first_s);
      }
    }
    std::printf("%s, young: %s\n", cadence.name, young.Text().c_str());
    std::printf("%s, settled after %.1f s: %s\n", cadence.name, settled_s, settled.Text().c_str());
    EXPECT_GE(young.coverage(), 0.999) << cadence.name;
    EXPECT_GE(settled.coverage(), 0.9995) << cadence.name;
    EXPECT_LE(settled.Error(1), 5'000) << cadence.name;  // a path takes 5.2 µs: no delay comes out negative
    EXPECT_LE(settled_s, 3) << cadence.name;
    EXPECT_EQ(young.outside_bound + settled.outside_bound, 0) << cadence.name;
  }
}

}  // namespace
}  // namespace cw::sync
