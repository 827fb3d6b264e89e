// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/pause.h"

#include <gtest/gtest.h>

#include <random>

namespace cw::control {
namespace {

// Rounds go once a millisecond; three of them had been missed when the verdict came.
constexpr uint32_t kProgress = 7, kVerdict = 10;
constexpr SilenceFound kFound = {.progress = kProgress, .round = kVerdict, .limit = 3, .silence_ns = 4 * kMs};
constexpr uint32_t RoundAt(int64_t ms) { return kVerdict + static_cast<uint32_t>(ms); }

// Answers come 1 ms after each question while `passes`. Returns when the verdict was first `wanted`, in ms; −1: never.
template <typename Passes, typename Progress>
int64_t Simulate(PauseWatch& watch, int64_t until_ms, Silence wanted, Passes passes, Progress progress) {
  int64_t found = -1, answer_at = -1;
  uint32_t token = 0;
  for (int64_t ms = 0; ms <= until_ms; ++ms) {
    if (answer_at == ms) watch.Answered(ms * kMs, token);
    if (watch.Ask(ms * kMs, RoundAt(ms), ++token) && passes(ms)) {
      answer_at = ms + 1;
    } else {
      --token;
    }
    watch.Step(ms * kMs, progress(ms), RoundAt(ms));
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
  PauseWatch watch(0, kFound);
  EXPECT_EQ(Simulate(watch, 500, Silence::kPaused, kAlways, kStill), 8) << "three questions, the last at 4 ms";
  EXPECT_EQ(watch.verdict(), Silence::kPaused);
}

TEST(Pause, WithoutEvidenceItIsDeadAfterTenMilliseconds) {
  PauseWatch watch(0, kFound);
  EXPECT_EQ(Simulate(watch, 3000, Silence::kDead, kNever, kStill), 10);
  EXPECT_EQ(watch.verdict(), Silence::kDead);
  EXPECT_LT(watch.asked(), 110) << "questions become rare";
  EXPECT_FALSE(watch.ClassStands(3000 * kMs));
}

TEST(Pause, AHostThatCouldNotAskTellsNoDeath) {
  PauseWatch watch(0, kFound);
  EXPECT_FALSE(watch.Step(30 * kMs, 7, RoundAt(30))) << "the first look at it, by a process that had no processor";
  int64_t ms = 30;
  for (; watch.verdict() == Silence::kUnknown && ms < 100; ++ms) {
    watch.Ask(ms * kMs, RoundAt(ms), 1);
    watch.Step(ms * kMs, 7, RoundAt(ms));
  }
  EXPECT_EQ(watch.verdict(), Silence::kDead);
  EXPECT_EQ(watch.asked(), 3);
  PauseWatch late(0, kFound);
  EXPECT_TRUE(late.Step(3000 * kMs, 7, RoundAt(3000))) << "after seconds nobody asks any more";
}

TEST(Pause, AClassThatStandsStillForSecondsIsBroken) {
  PauseWatch watch(0, kFound);
  EXPECT_EQ(Simulate(watch, 5000, Silence::kDead, kAlways, kStill), 2000);
  EXPECT_TRUE(watch.ClassStands(5000 * kMs)) << "but it is its class alone";
  EXPECT_FALSE(watch.ClassStands(7000 * kMs)) << "the other one is not heard any more";
  watch.Step(5001 * kMs, 8, RoundAt(5001));
  EXPECT_FALSE(watch.ClassStands(5001 * kMs)) << "it lets something through";
}

TEST(Pause, APausedPathMayDie) {
  PauseWatch watch(0, kFound);
  const int64_t dead = Simulate(
      watch, 1000, Silence::kDead, [](int64_t ms) { return ms < 300; }, kStill);
  EXPECT_GT(dead, 300);
  EXPECT_LE(dead, 425);
}

TEST(Pause, LatePacketsTellAPauseThatNoClassCould) {
  PauseWatch watch(0, kFound);
  EXPECT_EQ(Simulate(watch, 50, Silence::kDead, kNever, kStill), 10);
  watch.Held(8);
  EXPECT_FALSE(watch.Step(51 * kMs, 8, RoundAt(51))) << "it may have been overtaken";
  watch.Held(10);
  EXPECT_TRUE(watch.Step(52 * kMs, 10, RoundAt(52))) << "one of three may be lost besides";
  EXPECT_EQ(watch.verdict(), Silence::kPaused);
}

// The cut ends at 40 ms, and so does the queue behind which what was sent since then waits.
TEST(Pause, WhatWasSentAfterTheHealProvesNoPauseHoweverLateItIs) {
  PauseWatch watch(0, kFound);
  EXPECT_EQ(Simulate(watch, 60, Silence::kDead, kNever, kStill), 10);
  for (int64_t ms = 40; ms < 60; ++ms) watch.Held(RoundAt(ms));
  watch.Held(kProgress);
  EXPECT_FALSE(watch.Step(61 * kMs, RoundAt(59), RoundAt(61)));
  EXPECT_EQ(watch.held(), 0);
  EXPECT_EQ(watch.verdict(), Silence::kDead);
  // It ended just before the verdict: the last of the missed rounds was sent after it.
  PauseWatch young(0, kFound);
  young.Held(kVerdict);
  EXPECT_EQ(young.held(), 1);
  young.Step(20 * kMs, kVerdict, RoundAt(20));
  EXPECT_EQ(young.verdict(), Silence::kUnknown) << "nobody could ask";
}

// The path is back at 300 ms; its own class is heard 70 ms later, since its probes are rare or wait behind data.
TEST(Pause, AnswersThatCameAfterTheHealProveNoPause) {
  for (const int64_t heal_ms : {3, 8, 300, 1000}) {
    PauseWatch watch(0, {.progress = kProgress, .round = kVerdict, .limit = 3, .silence_ns = 40 * kMs});
    const int64_t own_ms = heal_ms + (heal_ms < 100 ? 20 : 70);
    const int64_t paused = Simulate(
        watch, own_ms + 5, Silence::kPaused, [&](int64_t ms) { return ms >= heal_ms; },
        [&](int64_t ms) { return ms < own_ms ? kProgress : RoundAt(ms - 1); });
    EXPECT_EQ(paused, -1) << heal_ms;
    EXPECT_EQ(watch.verdict(), Silence::kDead) << heal_ms;
  }
  // The same answers, and the own class says nothing for all the time that a healed one would have.
  PauseWatch watch(0, {.progress = kProgress, .round = kVerdict, .limit = 3, .silence_ns = 40 * kMs});
  EXPECT_GT(Simulate(
                watch, 600, Silence::kPaused, [](int64_t ms) { return ms >= 300; }, kStill),
            400);
}

TEST(Pause, AnIdlePairsPauseIsFoundOnceItsRareProbesAreMissed) {
  PauseWatch watch(0, kFound);  // a round each 100 ms
  int64_t found_ms = -1;
  for (uint32_t ms = 0; ms < 1000 && found_ms < 0; ++ms) {
    if (watch.Ask(ms * kMs, kVerdict + ms / 100, ms)) watch.Answered(ms * kMs, ms);
    watch.Step(ms * kMs, kProgress, kVerdict + ms / 100);
    if (watch.verdict() != Silence::kUnknown) found_ms = ms;
  }
  EXPECT_EQ(watch.verdict(), Silence::kPaused);
  EXPECT_GE(found_ms, 300);
  EXPECT_LE(found_ms, 310);
}

TEST(Pause, RoundsThatWereNeverSentAreNotMissed) {
  PauseWatch watch(0, kFound);
  for (uint32_t token = 1; token <= 3; ++token) {
    const int64_t ms = 2 * token;
    ASSERT_TRUE(watch.Ask(ms * kMs, kVerdict, token));
    watch.Answered((ms + 1) * kMs, token);
  }
  EXPECT_FALSE(watch.Step(1000 * kMs, kProgress, kVerdict + 1)) << "its own class was asked once since";
  watch.Answered(1000 * kMs, 77);
  EXPECT_EQ(watch.answers(), 3) << "to a question of another silence";
}

// Three probes lost in a row bring the kernel's verdict about; the other class loses as many.
TEST(Pause, ALossyPathIsNotTakenForAPausedOne) {
  std::mt19937 random(1);
  std::bernoulli_distribution arrives(0.5);
  int paused = 0;
  for (int run = 0; run < 1000; ++run) {
    PauseWatch watch(0, {.progress = 0, .round = 3, .silence_ns = 3 * kMs});
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
