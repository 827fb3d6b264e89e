// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/delay_gap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::control {
namespace {

using ::testing::HasSubstr;

const FlowKey kGapFlow = {.src = *Addr::Parse("10.0.0.10"), .dst = *Addr::Parse("10.0.1.10"), .dqpn = 0x11};

GapLook TakeLook(double flow_us, double mesh_us) {
  return {.flow_samples = 500,
          .flow_p50_ns = flow_us * 1e3,
          .flow_iqr_ns = 2'000,
          .mesh_samples = 5000,
          .mesh_p50_ns = mesh_us * 1e3,
          .mesh_p99_ns = (mesh_us + 10) * 1e3,
          .larger_ns = 1'000};
}

// Steps once a second; the second at which Step said true, −1: never.
int StepsUntilTold(GapWatch& watch, int from_s, int to_s, const GapLook& look, const GapClues& clues = {}) {
  for (int s = from_s; s < to_s; ++s) {
    if (watch.Step(kGapFlow, s * kSecond, look, clues)) return s;
  }
  return -1;
}

TEST(DelayGap, SpreadIsWhatMayDifferForGoodReason) {
  EXPECT_EQ(GapSpreadNs({}, TakeLook(30, 20)), 10'000 + 1'000 + 5'000);
  GapLook wide = TakeLook(30, 20);
  wide.flow_iqr_ns = 40'000;
  EXPECT_EQ(GapSpreadNs({}, wide), 10'000 + 1'000 + 20'000);
}

TEST(DelayGap, IsToldWhenItHasLasted) {
  GapWatch watch;
  EXPECT_EQ(StepsUntilTold(watch, 1, 60, TakeLook(36, 20)), -1) << "16 µs more is within the spread";
  EXPECT_EQ(StepsUntilTold(watch, 60, 90, TakeLook(37, 20)), 70);
  ASSERT_NE(watch.Of(kGapFlow), nullptr);
  EXPECT_TRUE(watch.Of(kGapFlow)->finding);
  EXPECT_EQ(watch.Of(kGapFlow)->cause, GapCause::kUnknown);
  EXPECT_THAT(watch.Of(kGapFlow)->text, HasSubstr("take 37.0 µs and the probes on its path 20.0 µs (p50), for 10 s"));
}

TEST(DelayGap, OneThatComesAndGoesIsNone) {
  GapWatch watch;
  for (int s = 1; s < 100; s += 10) {
    EXPECT_EQ(StepsUntilTold(watch, s, s + 9, TakeLook(90, 20)), -1);
    EXPECT_FALSE(watch.Step(kGapFlow, (s + 9) * kSecond, TakeLook(25, 20), {}));
  }
}

TEST(DelayGap, IsOverWhenItHasBeenAwayAsLong) {
  GapWatch watch;
  ASSERT_EQ(StepsUntilTold(watch, 1, 60, TakeLook(90, 20)), 11);
  EXPECT_EQ(StepsUntilTold(watch, 60, 65, TakeLook(25, 20)), -1);
  EXPECT_EQ(StepsUntilTold(watch, 65, 80, TakeLook(90, 20)), -1) << "it is the same one";
  EXPECT_TRUE(watch.Of(kGapFlow)->finding);
  EXPECT_EQ(StepsUntilTold(watch, 80, 120, TakeLook(25, 20)), 90);
  EXPECT_FALSE(watch.Of(kGapFlow)->finding);
  EXPECT_EQ(watch.Of(kGapFlow)->text, "");
  EXPECT_EQ(watch.Of(kGapFlow)->since_ns, 0);
}

TEST(DelayGap, FewSamplesSayNothing) {
  GapWatch watch;
  GapLook few = TakeLook(900, 20);
  few.flow_samples = 19;
  EXPECT_EQ(StepsUntilTold(watch, 1, 60, few), -1);
  EXPECT_FALSE(watch.Of(kGapFlow)->known);
  few = TakeLook(900, 20);
  few.mesh_samples = 49;
  EXPECT_EQ(StepsUntilTold(watch, 60, 120, few), -1);
  // A flow that pauses neither ends its finding nor makes it older.
  ASSERT_EQ(StepsUntilTold(watch, 120, 180, TakeLook(900, 20)), 130);
  EXPECT_EQ(StepsUntilTold(watch, 180, 240, few), -1);
  EXPECT_TRUE(watch.Of(kGapFlow)->finding);
}

TEST(DelayGap, QueuesThatProbesMeetAreNone) {
  GapLook bursts = TakeLook(200, 20);
  bursts.mesh_p99_ns = 210'000;  // the flow's own queue, a hundredth of the time or more
  GapWatch watch;
  EXPECT_EQ(StepsUntilTold(watch, 1, 60, bursts), -1);
}

TEST(DelayGap, LikelyCauses) {
  EXPECT_EQ(LikelyCause({}), GapCause::kUnknown);
  EXPECT_EQ(LikelyCause({.slow_sender = true}), GapCause::kSender);
  EXPECT_EQ(LikelyCause({.slow_receiver = true, .slow_sender = true}), GapCause::kReceiver);
  EXPECT_EQ(LikelyCause({.paused = true, .slow_receiver = true}), GapCause::kPauses);
  EXPECT_EQ(LikelyCause({.flow_dscp = 0, .probe_dscp = 26, .paused = true}), GapCause::kClass);
  EXPECT_EQ(LikelyCause({.flow_dscp = 0, .probe_dscp = 26, .ports_choose = false}), GapCause::kPath);
  GapWatch watch;
  ASSERT_EQ(StepsUntilTold(watch, 1, 60, TakeLook(90, 20), {.flow_dscp = 0, .probe_dscp = 26}), 11);
  EXPECT_THAT(watch.Of(kGapFlow)->text, HasSubstr("it is in DSCP 0, the probes in 26"));
}

TEST(DelayGap, FlowsThatAreGoneAreForgotten) {
  GapWatch watch;
  StepsUntilTold(watch, 1, 20, TakeLook(90, 20));
  watch.ForgetOthers();
  EXPECT_NE(watch.Of(kGapFlow), nullptr);
  watch.ForgetOthers();
  EXPECT_EQ(watch.Of(kGapFlow), nullptr);
}

}  // namespace
}  // namespace cw::control
