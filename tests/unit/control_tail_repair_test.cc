// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/tail_repair.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace cw::control {
namespace {

TailView TailFlow(uint32_t acked, uint32_t next) {
  return {.next = next, .acked = acked, .known = true, .can_go = true};
}

TEST(TailRepair, AsksOnceWhatStoodStillAndIsDoneWhenItIsAcknowledged) {
  TailWatch watch(TailFlow(10, 14), 0);
  EXPECT_EQ(watch.Step(TailFlow(10, 14), 1 * kMs), TailStep::kWait) << "an acknowledgement may still be under way";
  EXPECT_EQ(watch.Step(TailFlow(10, 14), 2 * kMs), TailStep::kNak);
  EXPECT_EQ(watch.Step(TailFlow(10, 14), 3 * kMs), TailStep::kWait);
  EXPECT_EQ(watch.Step(TailFlow(12, 14), 4 * kMs), TailStep::kWait) << "progress";
  EXPECT_EQ(watch.Step(TailFlow(14, 20), 5 * kMs), TailStep::kDone) << "the tail is; what is new has another path";
  EXPECT_EQ(watch.naks(), 1);
}

TEST(TailRepair, ProgressMeansThatNothingIsAsked) {
  TailWatch watch(TailFlow(10, 1000), 0);
  for (uint32_t ms = 1; ms < 400; ++ms) ASSERT_EQ(watch.Step(TailFlow(10 + ms, 1000), ms * kMs), TailStep::kWait) << ms;
  EXPECT_EQ(watch.naks(), 0);
}

TEST(TailRepair, FewNaksFurtherAndFurtherApart) {
  const TailRules rules;
  TailWatch watch(TailFlow(10, 14), 0, rules);
  std::vector<int64_t> naks_ms;
  TailStep step = TailStep::kWait;
  int64_t ms = 0;
  for (; ms < 2000 && (step == TailStep::kWait || step == TailStep::kNak); ++ms) {
    step = watch.Step(TailFlow(10, 14), ms * kMs);
    if (step == TailStep::kNak) naks_ms.push_back(ms);
  }
  EXPECT_EQ(step, TailStep::kGiveUp);
  EXPECT_EQ(naks_ms, (std::vector<int64_t>{2, 10, 42}));
  EXPECT_LE(ms, rules.life_ns / kMs);
}

TEST(TailRepair, NothingIsAskedIntoADeadPath) {
  TailWatch watch(TailFlow(10, 14), 0);
  TailView stuck = TailFlow(10, 14);
  stuck.can_go = false;
  for (int ms = 0; ms < 100; ++ms) ASSERT_EQ(watch.Step(stuck, ms * kMs), TailStep::kWait);
  EXPECT_EQ(watch.Step(TailFlow(10, 14), 100 * kMs), TailStep::kNak) << "a path came back";
}

TEST(TailRepair, WhatIsNotKnownExactlyIsLeftAlone) {
  TailWatch watch(TailFlow(10, 14), 0);
  TailView unknown = TailFlow(10, 14);
  unknown.known = false;
  EXPECT_EQ(watch.Step(unknown, 100 * kMs), TailStep::kDone);
  EXPECT_EQ(watch.Step(TailFlow(14, 14), 100 * kMs), TailStep::kDone) << "nothing is outstanding";
  EXPECT_EQ(watch.Step(TailFlow(14, 10), 100 * kMs), TailStep::kDone) << "another life of the queue pair";
  EXPECT_EQ(Unacknowledged(TailFlow(0, 0x7ffff0)), 0u) << "so is a window larger than any message";
}

TEST(TailRepair, WhereAcknowledgementsAreNotSeenSendingIsProgress) {
  TailView carried = TailFlow(10, 14);
  carried.acks_seen = false;
  TailWatch watch(carried, 0);
  for (int ms = 1; ms <= 20; ++ms) {
    ++carried.sent;
    carried.next += ms % 2;  // or one that was sent before
    ASSERT_EQ(watch.Step(carried, ms * kMs), TailStep::kWait) << ms;
  }
  EXPECT_EQ(watch.Step(carried, 21 * kMs), TailStep::kWait);
  EXPECT_EQ(watch.Step(carried, 22 * kMs), TailStep::kNak) << "its window is full";
  carried.acks_seen = true;
  ++carried.sent;
  EXPECT_EQ(watch.Step(carried, 30 * kMs), TailStep::kNak) << "where they are seen, sending is no progress";
}

TEST(TailRepair, SequenceNumbersWrap) {
  TailWatch watch(TailFlow(0xfffffe, 3), 0);
  EXPECT_EQ(Unacknowledged(TailFlow(0xfffffe, 3)), 5u);
  EXPECT_EQ(watch.Step(TailFlow(0xfffffe, 3), 2 * kMs), TailStep::kNak);
  EXPECT_EQ(watch.Step(TailFlow(1, 3), 3 * kMs), TailStep::kWait);
  EXPECT_EQ(watch.Step(TailFlow(3, 9), 4 * kMs), TailStep::kDone);
}

TEST(TailRepair, ASecondDeathWidensTheTailAndKeepsTheCount) {
  TailWatch watch(TailFlow(10, 14), 0);
  EXPECT_EQ(watch.Step(TailFlow(10, 14), 2 * kMs), TailStep::kNak);
  watch.Extend(TailFlow(10, 30), 3 * kMs);
  EXPECT_EQ(watch.Step(TailFlow(20, 30), 4 * kMs), TailStep::kWait);
  EXPECT_EQ(watch.Step(TailFlow(20, 30), 20 * kMs), TailStep::kNak);
  EXPECT_EQ(watch.naks(), 2);
  EXPECT_EQ(watch.Step(TailFlow(30, 30), 21 * kMs), TailStep::kDone);
}

TEST(TailRepair, TooOldIsForgotten) {
  const TailRules rules;
  TailWatch quiet(TailFlow(10, 1000), 0, rules);
  EXPECT_EQ(quiet.Step(TailFlow(20, 1000), rules.life_ns + 1), TailStep::kDone) << "never asked";
  TailWatch asked(TailFlow(10, 1000), 0, rules);
  EXPECT_EQ(asked.Step(TailFlow(10, 1000), 2 * kMs), TailStep::kNak);
  EXPECT_EQ(asked.Step(TailFlow(20, 1000), rules.life_ns + 1), TailStep::kGiveUp);
}

// A requester, its acknowledgements and losses at random: every NAK is for the first PSN that is not acknowledged, and
// there are never more than the rule's.
TEST(TailRepair, AtRandomNoNakIsStaleAndTheyAreBounded) {
  std::mt19937 random(3);
  for (int run = 0; run < 2000; ++run) {
    const TailRules rules;
    uint32_t acked = random() & 0xffffff, next = (acked + random() % 300) & 0xffffff;
    TailWatch watch(TailFlow(acked, next), 0, rules);
    int naks = 0;
    for (int64_t ms = 1; ms < 700; ++ms) {
      if (random() % 40 == 0) next = (next + random() % 100) & 0xffffff;
      const uint32_t outstanding = (next - acked) & 0xffffff;
      if (random() % 10 == 0 && outstanding > 0) acked = (acked + random() % outstanding) & 0xffffff;
      const TailStep step = watch.Step(TailFlow(acked, next), ms * kMs);
      if (step == TailStep::kDone || step == TailStep::kGiveUp) break;
      ASSERT_LT(ms, 502) << "forgotten in time";
      if (step == TailStep::kNak) {
        ++naks;
        ASSERT_GT(Unacknowledged(TailFlow(acked, next)), 0u);
      }
    }
    ASSERT_LE(naks, rules.max_naks);
  }
}

}  // namespace
}  // namespace cw::control
