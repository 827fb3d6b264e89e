// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/standstill.h"
#include "tests/unit/time_units.h"

#include <gtest/gtest.h>

namespace cw::lab {
namespace {

TEST(Standstills, BetweenLooksThatFoundTheSame) {
  Standstills stills;
  for (int ms = 0; ms <= 10; ++ms) stills.Look(ms * kMs, static_cast<uint64_t>(ms));
  for (int ms = 11; ms <= 15; ++ms) stills.Look(ms * kMs, 11);
  for (int ms = 16; ms <= 20; ++ms) stills.Look(ms * kMs, static_cast<uint64_t>(ms));
  EXPECT_EQ(stills.LongestMs(0, 20 * kMs), 4);
  EXPECT_EQ(stills.LongestMs(14 * kMs, 20 * kMs), 4) << "it overlaps";
  EXPECT_EQ(stills.LongestMs(16 * kMs, 20 * kMs), 0);
  EXPECT_EQ(stills.LongestMs(0, 11 * kMs), 0);
}

TEST(Standstills, OneThatGoesOnCounts) {
  Standstills stills;
  stills.Look(0, 1);
  stills.Look(30 * kMs, 1);
  EXPECT_EQ(stills.LongestMs(20 * kMs, 30 * kMs), 30);
}

TEST(Standstills, ALateLookProvesNothing) {
  Standstills stills;
  stills.Look(0, 1);
  stills.Look(40 * kMs, 2);
  stills.Look(80 * kMs, 3);
  EXPECT_EQ(stills.LongestMs(0, 80 * kMs), 0);
}

TEST(Standstills, OldOnesAreForgotten) {
  Standstills stills;
  stills.Look(0, 1);
  stills.Look(5 * kMs, 1);
  stills.Look(6 * kMs, 2);
  EXPECT_EQ(stills.LongestMs(0, 6 * kMs), 5);
  stills.Look(Standstills::kMemoryNs + 6 * kMs, 3);
  EXPECT_EQ(stills.LongestMs(0, 6 * kMs), 0);
}

}  // namespace
}  // namespace cw::lab
