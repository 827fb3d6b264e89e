// SPDX-License-Identifier: Apache-2.0
// The fleet's findings against faults that are known. CW_FLEET_SEED and CW_FLEET_FAULTS (of each kind) can be given.
#include "tests/sim/fleet_sim.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_join.h"
#include "tests/sim/fleet_shapes.h"

namespace cw::sim {
namespace {

uint64_t Seed() {
  const char* given = std::getenv("CW_FLEET_SEED");
  const uint64_t seed = std::strtoull(given != nullptr ? given : CW_COMMIT_SEED, nullptr, 0);
  std::printf("CW_FLEET_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

int Faults() {
  const char* given = std::getenv("CW_FLEET_FAULTS");
  return given == nullptr ? 8 : std::atoi(given);
}

// Of few faults one or two may be missed; docs/fleet.md has what many show.
TEST(FleetSim, FaultsAreFoundAndNamedAndLittleElse) {
  FleetSimResult result = SimulateFleet(SmallShapes(), Faults(), Seed());
  std::printf("%s", result.Table().c_str());
  const std::string why = absl::StrJoin(result.complaints, "\n");
  int faults = 0, found = 0, wrong = 0;
  for (int k = 1; k < FleetFault::kKinds; ++k) {
    const FleetScore& s = result.by_kind[static_cast<size_t>(k)];
    faults += s.faults;
    found += s.found;
    wrong += s.false_findings;
    EXPECT_GE(s.found, 0.7 * s.faults - 1) << FaultName(static_cast<FleetFault::Kind>(k)) << "\n" << why;
  }
  EXPECT_GE(found, 0.96 * faults) << why;
  EXPECT_LE(wrong, 0.06 * faults) << why;
  EXPECT_EQ(result.refused, 0U) << "the simulator is wrong";
}

TEST(FleetSim, AHealthyFleetHasNoFinding) {
  const FleetSimResult result = SimulateHealthy(SmallShapes()[2], 1800, Seed());
  EXPECT_TRUE(result.complaints.empty()) << absl::StrJoin(result.complaints, "\n");
}

}  // namespace
}  // namespace cw::sim
