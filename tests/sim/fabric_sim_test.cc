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

TEST(FabricSim, RecoveryGrowsWithTheInterval) {
  const RecoveryResult few = SimulateRecovery({.active_peers = 8, .faults = 300});
  const RecoveryResult many = SimulateRecovery({.active_peers = 64, .faults = 300});
  EXPECT_NEAR(few.interval_s, 8 * 16 / 10e3, 1e-3);
  EXPECT_GE(few.p50_s, 2 * few.interval_s);
  EXPECT_LE(few.most_s, 4 * few.interval_s);
  EXPECT_NEAR(many.p99_s / few.p99_s, 8, 1);
}

}  // namespace
}  // namespace cw::sim
