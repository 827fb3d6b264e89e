// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/unit/time_units.h"
#include "userspace/control/damping.h"

namespace cw::control {
namespace {

TEST(PathDamping, OneFailureIsForgiven) {
  PathDamping d;
  EXPECT_TRUE(d.UsableAt(0));
  d.Down(10 * kSecond);
  EXPECT_FALSE(d.UsableAt(10 * kSecond));
  d.Up(11 * kSecond);
  EXPECT_TRUE(d.UsableAt(11 * kSecond));
  EXPECT_NEAR(d.PenaltyAt(15 * kSecond), 500, 1e-6);  // one half-life after the failure
}

TEST(PathDamping, TwoAtOnceSuppressUntilThePenaltyHasDecayed) {
  PathDamping d;
  d.Down(0);
  d.Up(1);
  d.Down(2);  // 2000 within nanoseconds: a hair below
  d.Up(3);
  d.Down(4);
  d.Up(5);
  EXPECT_FALSE(d.UsableAt(6));
  // 3000 → 1000 takes log2(3) half-lives of 5 s.
  EXPECT_NEAR(static_cast<double>(d.ReuseAtNs(6)) * 1e-9, 5 * 1.58496, 0.01);
  EXPECT_FALSE(d.UsableAt(7'900'000'000));
  EXPECT_TRUE(d.UsableAt(7'950'000'000));
}

TEST(PathDamping, NeverLongerThanTheMaximum) {
  PathDamping d;
  for (int i = 0; i < 1000; ++i) {
    d.Down(i * 1000);
    d.Up(i * 1000 + 500);
  }
  EXPECT_FALSE(d.UsableAt(19 * kSecond));
  EXPECT_TRUE(d.UsableAt(20 * kSecond + 1'000'000));
}

TEST(PathDamping, DownCountsOnce) {
  PathDamping d;
  for (int i = 0; i < 10; ++i) d.Down(kSecond);
  EXPECT_NEAR(d.PenaltyAt(kSecond), 1000, 1e-6);
}

TEST(PathDamping, ReturnIsSlow) {
  PathDamping d;
  EXPECT_EQ(d.ReturnBudget(0), INT64_MAX);  // it never left
  d.Down(0);
  EXPECT_EQ(d.ReturnBudget(kSecond), 0);
  d.Up(2 * kSecond);
  EXPECT_EQ(d.ReturnBudget(2 * kSecond), 1);  // one flow, then twice as many more each second
  EXPECT_EQ(d.ReturnBudget(3 * kSecond), 3);
  EXPECT_EQ(d.ReturnBudget(4 * kSecond), 7);
  EXPECT_EQ(d.ReturnBudget(100 * kSecond), INT64_MAX);
}

TEST(PathDamping, ReturnOfADampedPathStartsWhenItIsUsable) {
  PathDamping d;
  for (int i = 0; i < 3; ++i) {
    d.Down(i);
    d.Up(i);
  }
  EXPECT_EQ(d.ReturnBudget(5 * kSecond), 0);
  EXPECT_EQ(d.ReturnBudget(8 * kSecond), 1);
}

TEST(FlapCounter, WindowSlidesExactly) {
  FlapCounter c;
  for (int i = 0; i < 9; ++i) c.Down(i * kSecond);
  EXPECT_EQ(c.CountAt(3600 * kSecond - 1), 9);
  EXPECT_EQ(c.CountAt(3600 * kSecond), 8);
  c.Down(3600 * kSecond);
  EXPECT_EQ(c.CountAt(3608 * kSecond), 1);
}

}  // namespace
}  // namespace cw::control
