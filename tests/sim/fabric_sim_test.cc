// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fabric_sim.h"

#include <gtest/gtest.h>

namespace cw::sim {
namespace {

TEST(FabricSim, SharesAreThoseOfOneFlowPerLink) {
  FabricSimSpec spec{.ports = 4, .sending = 0.001, .seconds = 0.1};  // two NICs, each sends to the other
  const FabricSimResult r = SimulateFabric(spec);
  EXPECT_EQ(r.nics, 16);
  EXPECT_EQ(r.flows, 2);
  EXPECT_DOUBLE_EQ(r.windows.front().least, 1);
  EXPECT_EQ(r.Moves(), 0) << "nobody is in the way";
}

TEST(FabricSim, TheSameSeedGivesTheSame) {
  const FabricSimSpec spec{.ports = 8, .seconds = 0.3};
  const FabricSimResult a = SimulateFabric(spec), b = SimulateFabric(spec);
  EXPECT_EQ(a.Moves(), b.Moves());
  EXPECT_DOUBLE_EQ(a.windows.back().mean, b.windows.back().mean);
}

TEST(FabricSim, MovesMakeAHalfFullFabricFaster) {
  FabricSimSpec spec{.ports = 8, .sending = 0.5, .seconds = 2};
  const FabricSimResult r = SimulateFabric(spec);
  EXPECT_LT(r.windows.front().mean, 0.95);
  EXPECT_GT(r.windows.back().mean, r.windows.front().mean + 0.02);
}

TEST(FabricSim, RecoveryTakesUntilTheFirstRoundThatIsMissed) {
  const RecoveryResult few = SimulateRecovery({.active_peers = 8, .faults = 300});
  const RecoveryResult many = SimulateRecovery({.active_peers = 512, .faults = 300});
  EXPECT_NEAR(few.interval_s, 8 * 16 / 10e3, 1e-3);
  EXPECT_NEAR(many.interval_s, 512 * 16 / 10e3, 1e-3);
  // The two rounds after it come from half of the budget: 16 probes from 5000 per second.
  const double rest_s = 2 * 16 / 5e3 + 0.004;
  EXPECT_NEAR(few.p50_s, few.interval_s / 2 + rest_s, rest_s);
  EXPECT_NEAR(many.p50_s, many.interval_s / 2, 0.1 * many.interval_s);
  EXPECT_LE(many.most_s, many.interval_s + 2 * rest_s);
}

}  // namespace
}  // namespace cw::sim
