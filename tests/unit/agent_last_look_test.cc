// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/last_look.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

constexpr int64_t kAskedNs = 1'000'000;

LastLook Of(uint8_t to, uint8_t second, int64_t due_ns, uint32_t pair = 3) {
  LastLook look;
  look.move.to = to;
  look.move.second = second;
  look.move.queue_ns = 7000;
  look.move.second_queue_ns = 9000;
  look.pair = pair;
  look.asked_ns = kAskedNs;
  look.due_ns = due_ns;
  return look;
}

TEST(LastLook, TakesProbesOfBothCandidatesThatWereSentSince) {
  LastLooks looks;
  EXPECT_TRUE(looks.empty());
  looks.Begin(Of(1, 2, 50));
  EXPECT_FALSE(looks.empty());
  looks.Answered(3, 1, kAskedNs - 1, 90'000);  // sent before
  looks.Answered(4, 1, kAskedNs, 90'000);      // another pair
  looks.Answered(3, 5, kAskedNs, 90'000);      // another path
  looks.Answered(3, 1, kAskedNs, 30'000);
  looks.Answered(3, 1, kAskedNs + 1, 40'000);
  const auto taken = looks.TakeDue(50);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(looks.empty());
  const control::FreshLook first = taken[0].Seen(0, true, 20'000), second = taken[0].Seen(1, false, 20'000);
  EXPECT_EQ(first.slot, 1);
  EXPECT_TRUE(first.usable);
  EXPECT_EQ(first.samples, 2);
  EXPECT_DOUBLE_EQ(first.queue_ns, 15'000);
  EXPECT_DOUBLE_EQ(first.base_ns, 20'000);
  EXPECT_EQ(second.slot, 2);
  EXPECT_FALSE(second.usable);
  EXPECT_EQ(second.samples, 0);
  EXPECT_DOUBLE_EQ(second.queue_ns, 9000) << "the last window's";
}

TEST(LastLook, NoPacketIsFasterThanTheBase) {
  LastLook look = Of(1, 2, 0);
  look.owd_ns[0] = {10'000};
  EXPECT_DOUBLE_EQ(look.Seen(0, true, 20'000).queue_ns, 0);
}

TEST(LastLook, OthersWaitForTheirTime) {
  LastLooks looks;
  looks.Begin(Of(1, 2, 50));
  looks.Begin(Of(3, 4, 60));
  EXPECT_TRUE(looks.TakeDue(49).empty());
  auto taken = looks.TakeDue(55);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].move.to, 1);
  taken = looks.TakeDue(INT64_MAX);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].move.to, 3);
}

TEST(LastLook, WhatWasSeenIsToldOnce) {
  LastLooks looks;
  looks.Keep({.stays = true});
  EXPECT_EQ(looks.TakeSeen().size(), 1u);
  EXPECT_TRUE(looks.TakeSeen().empty());
}

}  // namespace
}  // namespace cw::agent
