// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/drain.h"

#include <gtest/gtest.h>

namespace cw::control {
namespace {

const Addr kLeaf = Addr::FromV4(1), kSpine = Addr::FromV4(2), kOther = Addr::FromV4(3), kRemote = Addr::FromV4(9);

TEST(Drain, APathCrossesWhatStandsAmongItsHopsOrIsItsEnd) {
  const std::vector<Addr> hops = {kLeaf, kSpine};
  EXPECT_EQ(CrossesHop(hops, kRemote, kSpine), Crosses::kYes);
  EXPECT_EQ(CrossesHop(hops, kRemote, kRemote), Crosses::kYes);
  EXPECT_EQ(CrossesHop(hops, kRemote, kOther), Crosses::kNo);
}

TEST(Drain, WhereASwitchIsSilentAPathMayCrossAnything) {
  const std::vector<Addr> hops = {kLeaf, Addr{}};
  EXPECT_EQ(CrossesHop(hops, kRemote, kSpine), Crosses::kMaybe);
  EXPECT_EQ(CrossesHop(hops, kRemote, kLeaf), Crosses::kYes);
  EXPECT_EQ(CrossesHop({}, kRemote, kSpine), Crosses::kMaybe);
}

TEST(Drain, WhoIsOnWhichSlotCrossesItOrMay) {
  EXPECT_EQ(CrossesSlot(0b010, 0b100, 0), Crosses::kNo);
  EXPECT_EQ(CrossesSlot(0b010, 0b100, 1), Crosses::kYes);
  EXPECT_EQ(CrossesSlot(0b010, 0b100, 2), Crosses::kMaybe);
  EXPECT_EQ(CrossesSlot(0b010, 0, kSlotNone), Crosses::kMaybe) << "nobody knows its path";
  EXPECT_EQ(CrossesSlot(0, 0b100, kSlotNone), Crosses::kMaybe);
  EXPECT_EQ(CrossesSlot(0, 0, kSlotNone), Crosses::kNo);
  EXPECT_EQ(CrossesSlot(0xffff, 0, kSlotNone), Crosses::kYes) << "a NIC: whatever the path is";
}

DrainSlot Slot(uint8_t number, int flows) { return {.slot = number, .live = true, .path = true, .flows = flows}; }

TEST(Drain, FlowsGoToTheLivePathWithTheFewest) {
  std::vector<DrainSlot> slots = {Slot(0, 0), Slot(1, 3), Slot(2, 1), Slot(3, 0), Slot(4, 0)};
  slots[0].drained = true;
  slots[3].live = false;
  slots[4].path = false;
  EXPECT_EQ(DrainTarget(slots), 2);
  slots[2].damped = true;  // better a full path than one that flaps
  EXPECT_EQ(DrainTarget(slots), 1);
  slots[1].drained = true;
  EXPECT_EQ(DrainTarget(slots), 2);
  slots[2].drained = true;
  EXPECT_EQ(DrainTarget(slots), std::nullopt);
}

TEST(Drain, NothingRemainsOnlyWhereSomethingWas) {
  std::vector<DrainSlot> slots = {Slot(0, 0), Slot(1, 0)};
  EXPECT_FALSE(NothingRemains(slots));
  slots[0].drained = slots[1].drained = true;
  EXPECT_TRUE(NothingRemains(slots));
  slots[0].live = slots[1].live = false;  // a peer that is gone is no reason to refuse
  EXPECT_FALSE(NothingRemains(slots));
}

TEST(Drain, KindsHaveNames) {
  for (const DrainKind kind : {DrainKind::kPath, DrainKind::kLink, DrainKind::kSpine, DrainKind::kNic})
    EXPECT_EQ(ParseDrainKind(DrainKindName(kind)), kind);
  EXPECT_EQ(ParseDrainKind("rack"), std::nullopt);
}

}  // namespace
}  // namespace cw::control
