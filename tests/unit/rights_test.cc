// SPDX-License-Identifier: Apache-2.0
#include "userspace/rights/rights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>

#include <thread>

namespace cw::rights {
namespace {

using ::testing::ElementsAre;

TEST(Rights, WhatIsLeftWasHeldAndIsWanted) {
  constexpr Set kHeld = Bit(CAP_BPF) | Bit(CAP_PERFMON) | Bit(CAP_NET_ADMIN) | Bit(CAP_SYS_NICE);
  EXPECT_EQ(Left(kHeld, kSteady, /*root=*/false), Bit(CAP_BPF) | Bit(CAP_NET_ADMIN)) << "nothing is gained";
  EXPECT_EQ(Left(kHeld, kNone, /*root=*/false), 0u);
  EXPECT_EQ(Left(kHeld, kNone, /*root=*/true), 0u) << "root in a container does not hold it";
  EXPECT_EQ(Left(kHeld | Bit(CAP_DAC_OVERRIDE), kNone, /*root=*/false), 0u);
  EXPECT_EQ(Left(kHeld | Bit(CAP_DAC_OVERRIDE) | Bit(CAP_SYS_ADMIN), kNone, /*root=*/true), Bit(CAP_DAC_OVERRIDE));
}

TEST(Rights, HaveTheirNames) {
  EXPECT_THAT(Names(kSteady), ElementsAre("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"));
  EXPECT_THAT(Names(Bit(CAP_CHECKPOINT_RESTORE) | Bit(63)), ElementsAre("CAP_CHECKPOINT_RESTORE", "CAP_63"));
}

// On threads of their own, as what is given up is gone. Says more where the test is run as root.
TEST(Rights, AThreadGivesUpItsOwnAndThoseItMakesHaveNoMore) {
  const absl::StatusOr<Set> before = Held();
  ASSERT_TRUE(before.ok()) << before.status();
  Set kept = ~Set{0}, inherited = ~Set{0};
  int no_new = 0;
  std::thread([&] {
    ASSERT_TRUE(KeepOnly(Bit(CAP_NET_RAW)).ok());
    kept = Held().value_or(~Set{0});
    no_new = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    std::thread([&] { inherited = Held().value_or(~Set{0}); }).join();
    EXPECT_TRUE(KeepOnly(kSteady).ok());
    EXPECT_EQ(Held().value_or(~Set{0}), kept) << "and does not get it back";
  }).join();
  EXPECT_EQ(kept & ~(Bit(CAP_NET_RAW) | Bit(CAP_DAC_OVERRIDE)), 0u);
  EXPECT_EQ(kept & Bit(CAP_NET_RAW), *before & Bit(CAP_NET_RAW));
  EXPECT_EQ(inherited, kept);
  EXPECT_EQ(no_new, 1);
  EXPECT_EQ(Held().value_or(0), *before) << "the other threads' stay";
}

TEST(Rights, WorkWithoutThem) {
  Set during = ~Set{0}, below = ~Set{0};
  ASSERT_TRUE(RunWithout([&] {
                during = Held().value_or(~Set{0});
                std::thread([&] { below = Held().value_or(~Set{0}); }).join();
              }).ok());
  EXPECT_EQ(during & ~Bit(CAP_DAC_OVERRIDE), 0u);
  EXPECT_EQ(below, during);
}

}  // namespace
}  // namespace cw::rights
