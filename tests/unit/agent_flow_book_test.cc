// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/placement.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

TEST(FlowBook, DelaysAreOfThePathThatTheFlowTakes) {
  FlowEntry flow;
  for (int s = 0; s < 8; ++s) flow.AddDelay(s * kSecond, 2, 9'000'000);
  EXPECT_EQ(flow.owd.Merged().count(), 8u);
  flow.AddDelay(8 * kSecond, 3, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 1u) << "those of slot 2 are no longer its own";
  EXPECT_EQ(flow.owd.Merged().max_ns(), 10'000);
}

TEST(FlowBook, DelaysAreForgottenAfterTenSeconds) {
  FlowEntry flow;
  flow.AddDelay(10 * kSecond, 2, 9'000'000);
  flow.AddDelay(16 * kSecond, 2, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 2u);
  flow.AddDelay(22 * kSecond, 2, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 2u);
  EXPECT_EQ(flow.owd.Merged().max_ns(), 10'000);
}

TEST(FlowBook, PacketsGoNativelyWhereNothingActs) {
  FlowEntry flow;
  flow.tx.flow.sport = 51234;
  flow.tx.native_slot = 3;
  flow.tx.slot = 1;
  flow.tx.port = 49153;
  EXPECT_EQ(flow.SlotOfPackets(true), 1);
  EXPECT_EQ(flow.PortOfPackets(true), 49153);
  EXPECT_EQ(flow.SlotOfPackets(false), 3);
  EXPECT_EQ(flow.PortOfPackets(false), 51234);
  flow.tx.port = 0;
  EXPECT_EQ(flow.SlotOfPackets(true), 3);
  EXPECT_EQ(flow.PortOfPackets(true), 51234);
}

cw_tx_flow Steered(uint8_t slot, uint16_t port, uint8_t flags = 0) {
  cw_tx_flow flow{};
  flow.native_slot = 3;
  flow.slot = slot;
  flow.port = port;
  flow.flags = flags;
  flow.want_slot = CW_SLOT_NONE;
  return flow;
}

TEST(Placement, AFlowThatIsThereNeedsNoMove) {
  EXPECT_TRUE(IsOn(Steered(1, 49153), {.slot = 1, .port = 49153}));
  EXPECT_TRUE(IsOn(Steered(0, 0), {.slot = 3, .port = 49155})) << "its native port takes that path";
  EXPECT_TRUE(IsOn(Steered(0, 0), {.slot = 3, .port = 0}));
  EXPECT_FALSE(IsOn(Steered(1, 49153), {.slot = 3, .port = 0}));
  EXPECT_FALSE(IsOn(Steered(1, 49153), {.slot = 2, .port = 49154}));
  EXPECT_TRUE(IsOn(Steered(CW_SLOT_NONE, 50000), {.slot = CW_SLOT_NONE, .port = 50000}));
  EXPECT_FALSE(IsOn(Steered(CW_SLOT_NONE, 50001), {.slot = CW_SLOT_NONE, .port = 50000}));
}

TEST(Placement, AFlowThatIsOnItsWantedPathWaitsForNothing) {
  const auto wants = [](cw_tx_flow flow, uint8_t slot, uint16_t port) {
    flow.want_slot = slot;
    flow.want_port = port;
    return PendingSlot(flow);
  };
  EXPECT_EQ(PendingSlot(Steered(1, 49153)), CW_SLOT_NONE);
  EXPECT_EQ(wants(Steered(1, 49153), 2, 49154), 2);
  EXPECT_EQ(wants(Steered(1, 49153), 1, 49153), CW_SLOT_NONE) << "a dead path's flow came there first";
  EXPECT_EQ(wants(Steered(1, 49153), 1, 49160), 1) << "the path has another port by now";
  EXPECT_EQ(wants(Steered(0, 0), 3, 49155), CW_SLOT_NONE) << "its native port takes that path";
  EXPECT_EQ(wants(Steered(0, 0), 2, 49154), 2);
  EXPECT_EQ(wants(Steered(3, 49155), 3, 0), 3) << "home, to its native port";
}

TEST(Placement, AMoveWithinAPathIsToldAsOneOfPorts) {
  EXPECT_EQ(WayOfMove(1, 2, 50000), " from path 1 to path 2, udp-port 50000");
  EXPECT_EQ(WayOfMove(1, 1, 50000), " to another port of path 1, udp-port 50000");
  EXPECT_EQ(WayOfMove(CW_SLOT_NONE, 2, 50000), " from an unprobed path to path 2, udp-port 50000");
}

TEST(Placement, WhatUndoesItPutsTheFlowWhereItWas) {
  EXPECT_EQ(UndoOfSet(Steered(1, 49153), "f"), "steer clear f") << "the agent had placed it";
  EXPECT_EQ(UndoOfSet(Steered(1, 49153, CW_STEER_MANUAL), "f"), "steer set f --path 1");
  EXPECT_EQ(UndoOfSet(Steered(0, 0, CW_STEER_MANUAL), "f"), "steer set f --native");
  EXPECT_EQ(UndoOfSet(Steered(CW_SLOT_NONE, 50000, CW_STEER_MANUAL), "f"), "steer set f --port 50000");
  cw_tx_flow waits = Steered(1, 49153, CW_STEER_MANUAL);
  waits.want_slot = 2;
  waits.want_port = 49154;
  EXPECT_EQ(UndoOfSet(waits, "f"), "steer set f --path 2") << "it was on its way there";
  constexpr uint8_t kHard = CW_STEER_LOCKED | CW_STEER_HARD_LOCKED;
  EXPECT_EQ(UndoOfLock(0, CW_STEER_LOCKED, "f"), "steer lock --none f");
  EXPECT_EQ(UndoOfLock(CW_STEER_LOCKED, kHard, "f"), "steer lock f");
  EXPECT_EQ(UndoOfLock(kHard, 0, "f"), "steer lock --hard f");
  EXPECT_EQ(UndoOfLock(kHard, kHard, "f"), "");
}

TEST(Placement, ItsEndGivesBackTheEarlierPath) {
  const auto slots = [](uint16_t port) { return port == 49153 ? std::optional<uint8_t>(5) : std::nullopt; };
  const auto alive = [](uint8_t) { return false; };
  using Place = Deadlines::Place;
  EXPECT_EQ(PlaceAfter(Place{.slot = 1, .port = 49153}, 3, slots, alive), (Place{.slot = 5, .port = 49153}))
      << "the path has another number now";
  EXPECT_EQ(PlaceAfter(Place{.slot = 1, .port = 49153}, 3, slots, [](uint8_t) { return true; }),
            (Place{.slot = 3, .port = 0}));
  EXPECT_EQ(PlaceAfter(Place{.slot = 1, .port = 49999}, 3, slots, alive), (Place{.slot = 3, .port = 0}));
  EXPECT_EQ(PlaceAfter(std::nullopt, 3, slots, alive), (Place{.slot = 3, .port = 0}));
}

}  // namespace
}  // namespace cw::agent
