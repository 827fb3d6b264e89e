// SPDX-License-Identifier: Apache-2.0
// The fleet's findings against faults that are known. CW_FLEET_SEED and CW_FLEET_FAULTS (of each kind) can be given.
#include "tests/sim/fleet_sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

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

// Where little can be seen each of these was something else once, or two findings.
TEST(FleetSim, WhereLittleIsSeenAFaultIsOneFindingToo) {
  using Kind = FleetFault::Kind;
  const std::pair<Kind, const char*> cases[] = {
      {Kind::kCable, "planes"},                // all paths of a core switch cross both of its cables
      {Kind::kSwitch, "silent tier"},          // its hosts' paths end in silence, dead or not
      {Kind::kLeafPower, "sparse plan"},       // some of its hosts are asked by nobody outside
      {Kind::kLeafPower, "one path"},          // looks as its only cable does
      {Kind::kPaused, "one path"},             // both ends' answers stop
      {Kind::kPaused, "silent tier"},          // one of several switches at the same place
      {Kind::kPausedNic, "one path"},          // as one direction of its link, until another class answers
      {Kind::kBeforeStart, "planes"},          // nobody knows what is behind the core
      {Kind::kBeforeStart, "parallel links"},  // next to one that lives
      {Kind::kRestart, "parallel links"},      // a path that was never whole beside those that were
      {Kind::kSwapped, "sparse plan"},         // one of them is traced anew before the other
      {Kind::kTwoRacks, "two tiers"},          // who is left sees all of its own cables dead
      {Kind::kUplinks, "two tiers"},           // the last one looks as if the leaf had died
      {Kind::kCableFlaps, "silent tier"},
      {Kind::kFlapping, "parallel links"},
  };
  std::vector<FleetShape> shapes = SmallShapes();
  for (const auto& [kind, name] : cases) {
    const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                    [name = name](const FleetShape& s) { return name == std::string(s.name); });
    ASSERT_NE(shape, shapes.end()) << name;
    const FleetSimResult result = SimulateFleet({*shape}, 6, 1001, {static_cast<int>(kind)});
    EXPECT_TRUE(result.complaints.empty()) << FaultName(kind) << ", " << name << "\n"
                                           << absl::StrJoin(result.complaints, "\n");
    const FleetScore& score = result.by_kind[static_cast<size_t>(kind)];
    EXPECT_EQ(score.found, score.faults) << FaultName(kind) << ", " << name;
  }
}

TEST(FleetSim, AHealthyFleetHasNoFinding) {
  const FleetSimResult result = SimulateHealthy(SmallShapes()[2], 1800, Seed());
  EXPECT_TRUE(result.complaints.empty()) << absl::StrJoin(result.complaints, "\n");
}

}  // namespace
}  // namespace cw::sim
