// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/flow_class.h"

#include <gtest/gtest.h>

#include <random>

namespace cw::control {
namespace {

constexpr int64_t kWindow = 10 * kMs;

TEST(FlowClass, TheFirstClassIsTakenAtOnce) {
  FlowClass flows;
  EXPECT_FALSE(flows.Step(kWindow)) << "nothing was seen";
  EXPECT_FALSE(flows.dscp().has_value());
  flows.Saw(26, 0);
  EXPECT_FALSE(flows.Step(2 * kWindow)) << "no packet is no flow";
  flows.Saw(26, 1);
  EXPECT_TRUE(flows.Step(3 * kWindow));
  EXPECT_EQ(flows.dscp(), 26);
  EXPECT_FALSE(flows.Step(4 * kWindow)) << "told once";
}

// Another class has to lead for a second; how soon it begins to lead depends on what is remembered of the first.
TEST(FlowClass, AnotherClassIsTakenWhenItHasLedForASecond) {
  FlowClass flows;
  int64_t now = 0;
  for (; now < 1000 * kMs; now += kWindow) {
    flows.Saw(0, 20);
    flows.Step(now);
  }
  ASSERT_EQ(flows.dscp(), 0);
  const int64_t change = now;
  int64_t taken = 0;
  for (; now < change + 5000 * kMs; now += kWindow) {
    flows.Saw(26, 20);
    if (flows.Step(now)) taken = now;
  }
  EXPECT_EQ(flows.dscp(), 26);
  EXPECT_GE(taken - change, 1000 * kMs);
  EXPECT_LT(taken - change, 3000 * kMs);
}

TEST(FlowClass, ALeadThatIsLostBeginsAnew) {
  FlowClass flows({.fade_ns = 100 * kMs});
  int64_t now = 0;
  // Turns of 0.9 s: at the end of each the other class has led for less than a second.
  for (int turn = 0; turn < 20; ++turn) {
    for (const int64_t end = now + 900 * kMs; now < end; now += kWindow) {
      flows.Saw(turn % 2 == 0 ? 0 : 26, 20);
      EXPECT_EQ(flows.Step(now), now == 0);
    }
  }
  EXPECT_EQ(flows.dscp(), 0);
}

TEST(FlowClass, TwoClassesThatCarryAlikeDoNotAlternate) {
  std::mt19937 random(1);
  FlowClass flows;
  int changes = 0;
  for (int64_t now = 0; now < 600'000 * kMs; now += kWindow) {
    flows.Saw(26, random() % 100);
    flows.Saw(34, random() % 100);
    changes += flows.Step(now) ? 1 : 0;
  }
  EXPECT_EQ(changes, 1);
}

TEST(FlowClass, TheMostPacketsWinAmongMany) {
  std::mt19937 random(2);
  FlowClass flows;
  for (int64_t now = 0; now < 5000 * kMs; now += kWindow) {
    for (int i = 0; i < 5; ++i) flows.Saw(static_cast<uint8_t>(random() % 64), 1);
    flows.Saw(26, 20);
    flows.Step(now);
  }
  EXPECT_EQ(flows.dscp(), 26);
}

// A queue pair that connects while nothing else runs.
TEST(FlowClass, SomeStrayPacketsAreNoFlow) {
  FlowClass flows;
  int64_t now = 0;
  for (; now < 1000 * kMs; now += kWindow) {
    flows.Saw(26, 20);
    flows.Step(now);
  }
  for (const int64_t end = now + 3'600'000 * kMs; now < end; now += kWindow) {
    if (now % (10'000 * kMs) == 0) flows.Saw(48, 3);
    EXPECT_FALSE(flows.Step(now));
  }
  EXPECT_EQ(flows.dscp(), 26) << "kept in silence";
  for (const int64_t end = now + 3000 * kMs; now < end; now += kWindow) {
    flows.Saw(48, 1);
    flows.Step(now);
  }
  EXPECT_EQ(flows.dscp(), 48) << "a slow flow is one";
}

}  // namespace
}  // namespace cw::control
