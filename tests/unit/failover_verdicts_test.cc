// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_verdicts.h"
#include "tests/unit/time_units.h"

#include <gtest/gtest.h>

#include "userspace/lab/failover_fault.h"

namespace cw::lab {
namespace {

void ExpectDied(const SlotLook& before, const SlotLook& now, uint16_t port, uint32_t times) {
  const SlotDeaths died = DeathsBetween(before, now);
  EXPECT_EQ(died.times, times);
  EXPECT_TRUE(times == 0 || died.port == port) << died.port;
}

TEST(DeathsBetween, OfTheSamePathIsTheDifference) {
  ExpectDied({.port = 7, .deaths = 2}, {.port = 7, .deaths = 2}, 7, 0);
  ExpectDied({.port = 7, .deaths = 2}, {.port = 7, .deaths = 5}, 7, 3);
}

TEST(DeathsBetween, ASlotThatIsGivenOutAnewCountsFromNothing) {
  ExpectDied({.port = 7, .deaths = 2}, {.port = 8, .deaths = 0}, 8, 0);
  ExpectDied({.port = 7, .deaths = 2}, {.port = 8, .deaths = 1}, 8, 1);
  ExpectDied({.port = 7, .deaths = 2}, {.port = 7, .deaths = 1}, 7, 1);  // an agent started anew
  ExpectDied({}, {.port = 7, .deaths = 1}, 7, 1);                        // it died before the first look
}

TEST(DeathsBetween, ASlotThatIsGivenUpTellsOfItsLastPath) {
  ExpectDied({.port = 7, .deaths = 2}, {.port = 0, .deaths = 2}, 7, 0);
  ExpectDied({.port = 7, .deaths = 2}, {.port = 0, .deaths = 3}, 7, 1);
  ExpectDied({.port = 0, .deaths = 3}, {.port = 0, .deaths = 3}, 0, 0);
  ExpectDied({.port = 0, .deaths = 3}, {.port = 9, .deaths = 0}, 9, 0);
}

std::vector<Cut> CutsOf(CutKind kind, int spine) {
  std::vector<Cut> cuts;
  for (const LinkDirection& link : BrokenLinks(kind, spine, 2)) cuts.push_back({link, {1000 * kMs, 1400 * kMs}});
  return cuts;
}

TEST(Explained, ByTheSpineTheDirectionAndTheTime) {
  const std::vector<Cut> cuts = CutsOf(CutKind::kForward, 2);
  const Way way{.from_leaf = 0, .to_leaf = 1, .spine = 2};
  EXPECT_TRUE(Explained(cuts, way, 1001 * kMs));
  EXPECT_FALSE(Explained(cuts, way, 999 * kMs));
  EXPECT_TRUE(Explained(cuts, way, 1490 * kMs)) << "of what was lost before the repair";
  EXPECT_FALSE(Explained(cuts, way, 1600 * kMs));
  EXPECT_FALSE(Explained(cuts, {.from_leaf = 0, .to_leaf = 1, .spine = 1}, 1001 * kMs));
  EXPECT_FALSE(Explained(cuts, {.from_leaf = 1, .to_leaf = 0, .spine = 2}, 1001 * kMs))
      << "the other direction is whole";
}

TEST(Explained, ALinkThatIsDownLosesBothDirections) {
  const std::vector<Cut> cuts = CutsOf(CutKind::kLinkDown, 2);
  EXPECT_TRUE(Explained(cuts, {.from_leaf = 0, .to_leaf = 1, .spine = 2}, 1001 * kMs));
  EXPECT_TRUE(Explained(cuts, {.from_leaf = 1, .to_leaf = 0, .spine = 2}, 1001 * kMs));
  EXPECT_FALSE(Explained(cuts, {.from_leaf = 1, .to_leaf = 0, .spine = 0}, 1001 * kMs));
}

TEST(Explained, NoPathIsAtFaultWhereAHostIs) { EXPECT_FALSE(Explained({}, {0, 1, 2}, 1001 * kMs)); }

}  // namespace
}  // namespace cw::lab
