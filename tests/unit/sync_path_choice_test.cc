// SPDX-License-Identifier: Apache-2.0
#include "sync/path_choice.h"
#include "tests/unit/time_units.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace cw::sync {
namespace {

std::vector<Way> Ways(std::initializer_list<double> floors_ns, double noise_ns = 20) {
  std::vector<Way> ways;
  for (const double floor_ns : floors_ns) ways.push_back({true, floor_ns, noise_ns});
  return ways;
}

// The clocks are a second apart: only differences within a direction say anything.
constexpr double kOut = 1e9, kIn = -1e9;

TEST(WayChoice, EqualWaysAreAllUsed) {
  const WayChoice choice = ChooseWays(Ways({kOut, kOut + 200, kOut + 100}), Ways({kIn + 150, kIn, kIn + 10}));
  EXPECT_EQ(choice.there_left_out, 0u);
  EXPECT_EQ(choice.back_left_out, 0u);
}

TEST(WayChoice, TheShortOnesWhereEnoughTripsHaveThem) {
  const WayChoice choice = ChooseWays(Ways({kOut, kOut, kOut + 3000, kOut + 3000}), Ways({kIn + 3000, kIn, kIn, kIn}));
  EXPECT_EQ(choice.there_left_out, 0b1100u);
  EXPECT_EQ(choice.back_left_out, 0b0001u);
  EXPECT_EQ(choice.level_ns, 0);
}

// One short way of eight each way: one trip of 64 is short both ways, 49 are long both ways, and those are as
// symmetric.
TEST(WayChoice, TheLevelThatMostTripsHaveWhereTheShortOnesAreRare) {
  std::vector<Way> there(8, {true, kOut + 3000, 20}), back(8, {true, kIn + 3000, 20});
  there[2].floor_ns = kOut;
  back[5].floor_ns = kIn;
  const WayChoice choice = ChooseWays(there, back);
  EXPECT_EQ(choice.there_left_out, 1u << 2);
  EXPECT_EQ(choice.back_left_out, 1u << 5);
  EXPECT_EQ(choice.level_ns, 3000);
}

// A queue on seven of eight ways there: the majority is no argument, because the ways back are all short.
TEST(WayChoice, TheOneFreeWayAmongQueues) {
  std::vector<Way> there(8, {true, kOut + 80'000, 20}), back(8, {true, kIn, 20});
  there[6].floor_ns = kOut;
  const WayChoice choice = ChooseWays(there, back);
  EXPECT_EQ(choice.there_left_out, 0xffu & ~(1u << 6));
  EXPECT_EQ(choice.back_left_out, 0u);
}

TEST(WayChoice, WhatFloorsWanderByIsNoDifference) {
  const WayChoice choice = ChooseWays(Ways({kOut, kOut + 3000}, 1000), Ways({kIn, kIn + 2000}, 900));
  EXPECT_EQ(choice.there_left_out | choice.back_left_out, 0u);
}

TEST(WayChoice, WhoIsInStaysForALittleLonger) {
  const std::vector<Way> there = Ways({kOut, kOut + 400}), back = Ways({kIn, kIn});
  EXPECT_EQ(ChooseWays(there, back).there_left_out, 0u);
  EXPECT_EQ(ChooseWays(there, back, {.there_left_out = 0b10}).there_left_out, 0b10u);
}

TEST(WayChoice, UnknownWaysAreNotLeftOut) {
  std::vector<Way> there = Ways({kOut, kOut, kOut + 5000});
  there[2].known = false;
  EXPECT_EQ(ChooseWays(there, Ways({kIn})).there_left_out, 0u);
  EXPECT_EQ(ChooseWays({}, {}), WayChoice());
}

// Four ways each way, one there 5 us longer; replies take the ways in turn.
struct Trips {
  PathChoice paths;
  int64_t now_ns = 100 * kSecond;
  int admitted = 0, odd_admitted = 0;

  void Run(int64_t for_ns, bool line_known = true, size_t odd = 3) {
    admitted = odd_admitted = 0;
    for (const int64_t end = now_ns + for_ns; now_ns < end; now_ns += 20 * kMs) {
      for (size_t way = 0; way < 4; ++way) {
        const size_t back = (way + static_cast<size_t>(now_ns / (20 * kMs))) % 4;
        if (!paths.Admit(now_ns, way, back, way == odd ? 15'000 : 10'000, 10'000, line_known)) continue;
        ++admitted;
        odd_admitted += way == odd;
      }
    }
  }
};

TEST(PathChoice, LeavesTheLongWayOutAfterSomeSeconds) {
  Trips trips;
  trips.Run(2 * kSecond);
  EXPECT_GT(trips.odd_admitted, 0) << "not judged yet";
  trips.Run(3 * kSecond);
  trips.Run(2 * kSecond);
  EXPECT_EQ(trips.odd_admitted, 0);
  EXPECT_EQ(trips.admitted, 300);
  EXPECT_EQ(trips.paths.LongerThereNs(3), 5000);
  EXPECT_EQ(trips.paths.LongerThereNs(0), 0);
  EXPECT_LT(trips.paths.LongerThereNs(9), 0) << "not known";
}

TEST(PathChoice, LeavesNothingOutWithoutALine) {
  Trips trips;
  trips.Run(6 * kSecond, /*line_known=*/false);
  EXPECT_EQ(trips.odd_admitted, 300);
}

TEST(PathChoice, AWayThatBecameShortIsTakenBack) {
  Trips trips;
  trips.Run(5 * kSecond);
  trips.Run(5 * kSecond, true, /*odd=*/4);
  trips.Run(1 * kSecond, true, /*odd=*/4);
  EXPECT_EQ(trips.admitted, 200);
}

TEST(PathChoice, AnotherPathIsNotLeftOutForThePastOfItsNumber) {
  Trips trips;
  trips.Run(5 * kSecond);
  trips.paths.ForgetThere(3);
  EXPECT_TRUE(trips.paths.Admit(trips.now_ns, 3, 0, 15'000, 10'000, true));
}

TEST(PathChoice, WhenTheWaysInUseAreGoneAllAreUsed) {
  Trips trips;
  trips.Run(5 * kSecond);
  const int64_t cut_ns = trips.now_ns;
  EXPECT_FALSE(trips.paths.Admit(cut_ns + 100 * kMs, 3, 0, 15'000, 10'000, true));
  EXPECT_TRUE(trips.paths.Admit(cut_ns + 600 * kMs, 3, 0, 15'000, 10'000, true));
}

TEST(PathChoice, AClockThatWasSetBackBeginsAfresh) {
  Trips trips;
  trips.Run(5 * kSecond);
  EXPECT_TRUE(trips.paths.Admit(trips.now_ns - 50 * kSecond, 3, 0, 15'000, 10'000, true));
}

}  // namespace
}  // namespace cw::sync
