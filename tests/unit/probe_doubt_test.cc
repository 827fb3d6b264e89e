// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/probe/doubt.h"

#include <gtest/gtest.h>

namespace cw::probe {
namespace {

constexpr int64_t kDoubtNs = 10'000 * kMs;
constexpr uint32_t kSlots = 0xf;

cw_pair Answered(uint32_t round) {
  cw_pair pair = {};
  for (uint32_t s = 0; s < 4; ++s) {
    pair.slot[s].state = CW_SLOT_UP;
    pair.slot[s].progress_round = round;
  }
  return pair;
}

TEST(Doubt, NoneWhereAllIsAnswered) {
  const cw_pair pair = Answered(7);
  DoubtMemory memory;
  EXPECT_FALSE(JudgeDoubt(pair, kSlots, 7, false, 0, kDoubtNs, memory).active);
  const DoubtVerdict carries = JudgeDoubt(pair, kSlots, 7, true, 0, kDoubtNs, memory);
  EXPECT_TRUE(carries.active);
  EXPECT_FALSE(carries.hurry);
}

TEST(Doubt, OneSlotOfTheLastRoundIsMissing) {
  cw_pair pair = Answered(7);
  pair.slot[2].progress_round = 6;
  DoubtMemory memory;
  EXPECT_TRUE(JudgeDoubt(pair, kSlots, 7, true, 0, kDoubtNs, memory).hurry);
  EXPECT_FALSE(JudgeDoubt(pair, kSlots & ~4u, 7, true, 0, kDoubtNs, memory).hurry) << "that slot is not probed";
  memory = {};
  EXPECT_FALSE(JudgeDoubt(pair, kSlots, 7, false, 0, kDoubtNs, memory).active) << "no data hangs on it";
  EXPECT_FALSE(JudgeDoubt(pair, kSlots, 8, true, 0, kDoubtNs, memory).hurry) << "the peer has told nothing of it yet";
}

TEST(Doubt, ASuspectSlotWakesAnIdlePairForAWhile) {
  cw_pair pair = Answered(7);
  pair.slot[0].state = CW_SLOT_SUSPECT;
  DoubtMemory memory;
  const DoubtVerdict fresh = JudgeDoubt(pair, kSlots, 7, false, 5 * kMs, kDoubtNs, memory);
  EXPECT_TRUE(fresh.active);
  EXPECT_FALSE(fresh.hurry);
  EXPECT_FALSE(JudgeDoubt(pair, kSlots, 7, false, 5 * kMs + kDoubtNs, kDoubtNs, memory).active);
  pair.slot[1].state = CW_SLOT_DEAD;
  EXPECT_TRUE(JudgeDoubt(pair, kSlots, 7, false, 6 * kMs + kDoubtNs, kDoubtNs, memory).active) << "a new doubt";
}

TEST(Doubt, AnswersAreLookedAtWhereTheNextRoundIsFar) {
  EXPECT_EQ(LookAfterNs(kMs, kMs), 0);
  EXPECT_EQ(LookAfterNs(4 * kMs, kMs), 0);
  EXPECT_EQ(LookAfterNs(5 * kMs, kMs), 2 * kMs);
}

}  // namespace
}  // namespace cw::probe
