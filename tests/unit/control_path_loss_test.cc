// SPDX-License-Identifier: Apache-2.0
// Grey failures told from probe rounds: how soon, and that nothing else passes for one.
#include "userspace/control/path_loss.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace cw::control {
namespace {

constexpr uint16_t kFour = 0b1111;

// Rounds of four paths; each slot's probe is lost with its own probability, each reply with that of the way back, over
// which replies come in turn. A reply tells what arrived in eight rounds.
struct Rounds {
  explicit Rounds(uint64_t seed, LossRules rules = {}) : loss(rules), random(seed) {}

  PairLoss loss;
  ProbeFates fates;
  std::mt19937_64 random;
  std::array<double, 4> lost{}, lost_back{};
  uint32_t round = 0xfffffff0;  // wraps soon
  uint16_t judged = kFour;
  ProbeFates::Arrived arrived{};

  bool Chance(double p) { return std::uniform_real_distribution<double>()(random) < p; }

  // The rounds until a verdict of that kind on `slot`, -1 within `limit` rounds. Every other verdict is a failure.
  int Until(uint8_t slot, bool lossy, int limit) {
    for (int i = 1; i <= limit; ++i) {
      One();
      if (i % 20 != 0) continue;
      for (const PairLoss::Verdict& verdict : loss.Judge()) {
        EXPECT_EQ(verdict.slot, slot);
        EXPECT_EQ(verdict.lossy, lossy);
        if (verdict.slot == slot && verdict.lossy == lossy) return i;
      }
    }
    return -1;
  }

  // No verdict on anything for so many rounds.
  void Quiet(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      One();
      if (i % 20 != 0) continue;
      ASSERT_TRUE(loss.Judge().empty()) << "after " << i << " rounds";
    }
  }

  void One() {
    ++round;
    std::copy_backward(arrived.begin(), arrived.end() - 1, arrived.end());
    arrived[0] = 0;
    for (uint8_t s = 0; s < 4; ++s) {
      if ((judged >> s & 1) == 0 || Chance(lost[s])) continue;
      arrived[0] |= static_cast<uint16_t>(1u << s);
      if (!Chance(lost_back[(s + round) % 4]))
        fates.Answered(round, s, arrived, judged, [&](const ProbeFates::Round& settled) { loss.Take(settled); });
    }
  }
};

class ShareTest : public testing::TestWithParam<uint64_t> {};

TEST_P(ShareTest, LossOfTenPercentIsFoundWithinAHundredRounds) {
  Rounds rounds(GetParam());
  rounds.Quiet(5000);
  rounds.lost[2] = 0.10;
  const int found = rounds.Until(2, true, 1000);
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 250);
  EXPECT_EQ(rounds.loss.lossy(), 0b0100);
}

TEST_P(ShareTest, LossOfOnePercentIsFoundWithinTwoThousandRounds) {
  Rounds rounds(GetParam());
  rounds.Quiet(5000);
  rounds.lost[1] = 0.01;
  const int found = rounds.Until(1, true, 6000);
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 3000);
}

TEST_P(ShareTest, APathThatLosesNothingMoreIsCleanAgain) {
  Rounds rounds(GetParam());
  rounds.lost[3] = 0.5;
  ASSERT_GT(rounds.Until(3, true, 200), 0);
  for (int i = 0; i < 3000; ++i) rounds.One();
  EXPECT_TRUE(rounds.loss.Judge().empty()) << "it still loses";
  rounds.lost[3] = 0;
  EXPECT_GT(rounds.Until(3, false, 2500), 0);
  EXPECT_EQ(rounds.loss.lossy(), 0);
  rounds.Quiet(3000);
}

TEST_P(ShareTest, ALossyWayBackIsNobodysForwardPath) {
  Rounds rounds(GetParam());
  rounds.lost_back[1] = 0.3;
  rounds.Quiet(20000);
}

TEST_P(ShareTest, LossesOnTheWayBackHideNoneOnTheWayThere) {
  Rounds rounds(GetParam());
  rounds.lost_back[1] = 0.3;
  rounds.Quiet(2000);
  rounds.lost[2] = 0.10;
  const int found = rounds.Until(2, true, 1000);
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 250);
}

TEST_P(ShareTest, LossOfOneInAThousandEverywhereIsNormal) {
  Rounds rounds(GetParam());
  rounds.lost = {0.001, 0.001, 0.001, 0.001};
  rounds.Quiet(20000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShareTest, testing::Range<uint64_t>(1, 21));

// Chance may blame a path for what all of them lose, once in thousands of such peers; 3 of 1200 are tolerated.
TEST(PathLoss, APeerThatBeginsToLosePacketsCostsNoPath) {
  int blamed = 0;
  for (const double lost : {0.005, 0.01, 0.025, 0.05, 0.1, 0.2}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      Rounds rounds(1000 + seed);
      rounds.Quiet(1000);
      rounds.lost.fill(lost);
      for (int i = 0; i < 2500; ++i) {
        rounds.One();
        if (i % 20 == 0) blamed += static_cast<int>(rounds.loss.Judge().size());
      }
    }
  }
  EXPECT_LE(blamed, 3);
}

TEST(PathLoss, ASilenceOfOnePathIsNotLoss) {
  Rounds rounds(1);
  rounds.Quiet(1000);
  rounds.lost[0] = 1;
  for (int i = 0; i < 40; ++i) rounds.One();
  rounds.lost[0] = 0;
  rounds.Quiet(5000);
}

TEST(PathLoss, WhatAllPathsLoseTogetherIsNotTheirs) {
  Rounds rounds(1);
  for (int outage = 0; outage < 50; ++outage) {
    rounds.lost = {0.9, 0.9, 0.9, 0.9};
    for (int i = 0; i < 20; ++i) rounds.One();
    rounds.lost = {};
    rounds.Quiet(200);
  }
}

TEST(PathLoss, ALateReplyCountsAsOne) {
  Rounds rounds(1);
  const auto take = [&](const ProbeFates::Round& round) { rounds.loss.Take(round); };
  ProbeFates::Arrived three{}, four{};
  three.fill(0b0111);
  four.fill(kFour);
  for (uint32_t round = 1; round < 4000; ++round) {
    for (uint8_t s = 0; s < 3; ++s) rounds.fates.Answered(round, s, three, kFour, take);
    if (round > 20) rounds.fates.Answered(round - 20, 3, four, kFour, take);  // behind a queue of 20 rounds
    ASSERT_TRUE(rounds.loss.Judge().empty());
  }
  EXPECT_EQ(rounds.loss.Share(3), 0);
}

TEST(PathLoss, ADeadPathIsNotJudgedAndBeginsAnew) {
  Rounds rounds(1);
  rounds.Quiet(500);
  rounds.judged = 0b1011;
  rounds.Quiet(500);
  rounds.judged = kFour;
  rounds.Quiet(500);
  EXPECT_EQ(rounds.loss.Share(2), 0);
}

TEST(PathLoss, ALimitOfZeroTurnsItOff) {
  Rounds rounds(1, {.limit = 0});
  rounds.lost[0] = 0.5;
  rounds.Quiet(3000);
}

TEST(PathLoss, AnotherLimitHoldsForWhatIsKnown) {
  Rounds rounds(1, {.limit = 0});
  rounds.lost[1] = 0.1;
  rounds.Quiet(2000);
  rounds.loss.SetLimit(0.005);
  EXPECT_EQ(rounds.Until(1, true, 20), 20) << "at the next judgement";
}

TEST(PathLoss, AnotherNumberingBeginsAnew) {
  Rounds rounds(1);
  rounds.Quiet(500);
  rounds.round += 1'000'000;
  rounds.Quiet(500);
}

}  // namespace
}  // namespace cw::control
