// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/pause.h"

#include <gtest/gtest.h>

#include <random>

namespace cw::control {
namespace {

// Answers come 1 ms after each question while `passes`. Returns when the verdict was first `wanted`, in ms; −1: never.
template <typename Passes, typename Progress>
int64_t Simulate(PauseWatch& watch, int64_t until_ms, Silence wanted, Passes passes, Progress progress) {
  int64_t found = -1, answer_at = -1;
  for (int64_t ms = 0; ms <= until_ms; ++ms) {
    if (answer_at == ms) watch.Answered(ms * kMs);
    if (watch.Ask(ms * kMs) && passes(ms)) answer_at = ms + 1;
    watch.Step(ms * kMs, progress(ms));
    if (found < 0 && watch.verdict() == wanted) found = ms;
  }
  return found;
}

TEST(PauseWatch, QuestionsAreInAClassThatTheFlowsAreNotIn) {
  EXPECT_EQ(OtherClass(0, std::nullopt), 8);
  EXPECT_EQ(OtherClass(5, std::nullopt), 8) << "many switches put 0 to 7 into one queue";
  EXPECT_EQ(OtherClass(8, std::nullopt), 0);
  EXPECT_EQ(OtherClass(26, std::nullopt), 0);
  EXPECT_EQ(OtherClass(26, 10), 10);
  EXPECT_EQ(OtherClass(10, 10), 0) << "the flows came to the class that was configured";
  EXPECT_EQ(OtherClass(0, 0), 8);
  for (uint8_t flows = 0; flows < 64; ++flows) {
    for (uint8_t wanted = 0; wanted < 64; ++wanted) EXPECT_NE(OtherClass(flows, wanted), flows);
  }
}

constexpr auto kStill = [](int64_t) { return 7u; };
constexpr auto kAlways = [](int64_t) { return true; };
constexpr auto kNever = [](int64_t) { return false; };

TEST(Pause, AnotherClassThatPassesTellsAPauseWithinMilliseconds) {
  PauseWatch watch(0, 7);
  EXPECT_EQ(Simulate(watch, 500, Silence::kPaused, kAlways, kStill), 5);
  EXPECT_EQ(watch.verdict(), Silence::kPaused);
}

TEST(Pause, WithoutEvidenceItIsDeadAfterTenMilliseconds) {
  PauseWatch watch(0, 7);
  EXPECT_EQ(Simulate(watch, 3000, Silence::kDead, kNever, kStill), 10);
  EXPECT_EQ(watch.verdict(), Silence::kDead);
  EXPECT_LT(watch.asked(), 110) << "questions become rare";
  EXPECT_FALSE(watch.ClassStands(3000 * kMs));
}

TEST(Pause, AHostThatCouldNotAskTellsNoDeath) {
  PauseWatch watch(0, 7);
  EXPECT_FALSE(watch.Step(30 * kMs, 7)) << "the first look at it, by a process that had no processor";
  int64_t ms = 30;
  for (; watch.verdict() == Silence::kUnknown && ms < 100; ++ms) {
    watch.Ask(ms * kMs);
    watch.Step(ms * kMs, 7);
  }
  EXPECT_EQ(watch.verdict(), Silence::kDead);
  EXPECT_EQ(watch.asked(), 3);
  PauseWatch late(0, 7);
  EXPECT_TRUE(late.Step(3000 * kMs, 7)) << "after seconds nobody asks any more";
}

TEST(Pause, AClassThatStandsStillForSecondsIsBroken) {
  PauseWatch watch(0, 7);
  EXPECT_EQ(Simulate(watch, 5000, Silence::kDead, kAlways, kStill), 2000);
  EXPECT_TRUE(watch.ClassStands(5000 * kMs)) << "but it is its class alone";
  EXPECT_FALSE(watch.ClassStands(7000 * kMs)) << "the other one is not heard any more";
  watch.Step(5001 * kMs, 8);
  EXPECT_FALSE(watch.ClassStands(5001 * kMs)) << "it lets something through";
}

TEST(Pause, APausedPathMayDie) {
  PauseWatch watch(0, 7);
  const int64_t dead = Simulate(
      watch, 1000, Silence::kDead, [](int64_t ms) { return ms < 300; }, kStill);
  EXPECT_GT(dead, 300);
  EXPECT_LE(dead, 425);
}

TEST(Pause, LatePacketsTellAPauseThatNoClassCould) {
  PauseWatch watch(0, 7);
  EXPECT_EQ(Simulate(watch, 50, Silence::kDead, kNever, kStill), 10);
  watch.Held();
  watch.Held();
  EXPECT_FALSE(watch.Step(51 * kMs, 8)) << "one or two may have been overtaken";
  watch.Held();
  EXPECT_TRUE(watch.Step(52 * kMs, 9));
  EXPECT_EQ(watch.verdict(), Silence::kPaused);
}

// Three probes lost in a row bring the kernel's verdict about; the other class loses as many.
TEST(Pause, ALossyPathIsNotTakenForAPausedOne) {
  std::mt19937 random(1);
  std::bernoulli_distribution arrives(0.5);
  int paused = 0;
  for (int run = 0; run < 1000; ++run) {
    PauseWatch watch(0, 0);
    uint32_t newest = 0;
    Simulate(
        watch, 20, Silence::kPaused, [&](int64_t) { return arrives(random); },
        [&](int64_t ms) { return newest = arrives(random) ? static_cast<uint32_t>(ms) : newest; });
    paused += watch.verdict() == Silence::kPaused;
  }
  EXPECT_LT(paused, 60) << "of 1000";
}

}  // namespace
}  // namespace cw::control
