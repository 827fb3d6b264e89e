// SPDX-License-Identifier: Apache-2.0
// The breaker on traces: what flows of a host got per second, before and after moves.
#include "userspace/control/breaker.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace cw::control {
namespace {

constexpr double kTick = 0.05;
constexpr double kNaksPerMove = 1;

struct Trace {
  double bytes_per_s = 1e6;
  double naks_per_s = 0;
  bool stands = false;  // packets under way, and nothing is acknowledged
};

// Flows that are seen 20 times per second, as the agent does.
class BreakerOnTraces : public ::testing::Test {
 protected:
  BreakerOnTraces() {
    for (uint32_t i = 0; i < 8; ++i) {
      BreakerFlow flow{.key = {.src = Addr::FromV4(1), .dst = Addr::FromV4(2), .dqpn = i}};
      flow.answers_known = true;
      flow.in_flight = true;
      flows_.push_back(flow);
    }
    traces_.resize(flows_.size());
  }
  int64_t NowNs() const { return static_cast<int64_t>(now_s_ * 1e9); }
  void Move(size_t flow, uint8_t from, uint8_t to, int64_t spill_ns = 0) {
    flows_[flow].naks += kNaksPerMove;
    breaker_.Moved({.flow = flows_[flow].key, .from = {.slot = from}, .to = {.slot = to}, .spill_ns = spill_ns},
                   NowNs());
  }
  void Pass(double seconds) {
    for (double end_s = now_s_ + seconds; now_s_ < end_s; now_s_ += kTick) {
      for (size_t i = 0; i < flows_.size(); ++i) {
        const Trace& trace = traces_[i];
        flows_[i].bytes += static_cast<uint64_t>(trace.bytes_per_s * kTick);
        flows_[i].naks += std::poisson_distribution<uint64_t>(trace.naks_per_s * kTick + 1e-12)(random_);
        if (!trace.stands) flows_[i].acks += 10;
      }
      breaker_.See(flows_, NowNs());
      for (BreakerVerdict& verdict : breaker_.TakeVerdicts()) verdicts_.push_back(std::move(verdict));
      if (std::optional<BreakerTrip> trip = breaker_.TakeTrip(NowNs())) trips_.push_back(*trip);
    }
  }
  int Harmful() const {
    int count = 0;
    for (const BreakerVerdict& verdict : verdicts_) count += verdict.harmful;
    return count;
  }

  std::mt19937 random_{1};
  Breaker breaker_{BreakerRules{}};
  std::vector<BreakerFlow> flows_;
  std::vector<Trace> traces_;
  std::vector<BreakerVerdict> verdicts_;
  std::vector<BreakerTrip> trips_;
  double now_s_ = 100;
};

TEST_F(BreakerOnTraces, MovesThatDoNoHarmTripNothing) {
  Pass(5);
  for (size_t i = 0; i < 4; ++i) {
    Move(i, 1, 2);
    Pass(1);
  }
  Pass(10);
  EXPECT_EQ(verdicts_.size(), 4u);
  EXPECT_EQ(Harmful(), 0);
  EXPECT_TRUE(trips_.empty());
}

TEST_F(BreakerOnTraces, TwoMovesOntoLossyPathsTripIt) {
  Pass(5);
  for (size_t i = 0; i < 2; ++i) {
    Move(i, 1, 2);
    traces_[i].naks_per_s = 20;
    Pass(1);
  }
  ASSERT_EQ(trips_.size(), 1u) << "within a second of the second move";
  EXPECT_EQ(trips_[0].harmful, 2);
  ASSERT_EQ(trips_[0].undo.size(), 2u);
  EXPECT_EQ(trips_[0].undo[0].from.slot, 1);
  EXPECT_TRUE(breaker_.tripped());
}

// What the contention rule did in the lab: its own trials took flows off the bad path before rates could be looked at.
TEST_F(BreakerOnTraces, NaksCountFromTheMoveOnAlsoWhereTheFlowIsMovedAgainSoon) {
  Pass(5);
  for (size_t i = 0; i < 3 && trips_.empty(); ++i) {
    Move(i, 1, 2);
    traces_[i].naks_per_s = 20;
    Pass(0.6);
    traces_[i].naks_per_s = 0;
    Move(i, 2, 1);  // back: not judged, or it would hide the harm
    Pass(0.6);
  }
  EXPECT_EQ(trips_.size(), 1u);
}

// Soft-RoCE, 60 ms of queue: what the moved packets overtake comes in between them, and costs NAKs for 0.3 s.
TEST_F(BreakerOnTraces, WhatAForcedMoveOvertakesIsNoHarmUntilItHasDrained) {
  constexpr int64_t kSpillNs = 240'000'000;
  Pass(5);
  for (size_t i = 0; i < 4; ++i) {
    Move(i, 1, 2, i < 2 ? kSpillNs : 0);
    traces_[i].naks_per_s = 150;
    Pass(0.3);
    traces_[i].naks_per_s = 0;
    Pass(4);
    ASSERT_EQ(verdicts_.size(), i + 1);
    EXPECT_EQ(verdicts_[i].harmful, i >= 2) << i;
  }
}

TEST_F(BreakerOnTraces, NaksThatGoOnBehindItAreHarm) {
  Pass(5);
  for (size_t i = 0; i < 2; ++i) {
    Move(i, 1, 2, 240'000'000);
    traces_[i].naks_per_s = 20;
    Pass(2);
  }
  EXPECT_EQ(trips_.size(), 1u);
}

TEST_F(BreakerOnTraces, OneHarmfulMoveDoesNotTrip) {
  Pass(5);
  Move(0, 1, 2);
  traces_[0].naks_per_s = 20;
  Pass(20);
  EXPECT_EQ(Harmful(), 1);
  EXPECT_TRUE(trips_.empty());
}

TEST_F(BreakerOnTraces, HalfOfThemIsNotEnough) {
  Pass(5);
  for (size_t i = 0; i < 3; ++i) Move(i, 1, 2);
  Pass(5);
  ASSERT_EQ(verdicts_.size(), 3u);
  for (size_t i = 3; i < 6; ++i) {
    Move(i, 1, 2);
    traces_[i].naks_per_s = 20;
  }
  Pass(5);
  EXPECT_EQ(Harmful(), 3);
  EXPECT_TRUE(trips_.empty()) << "3 of 6";
  Move(6, 1, 2);
  traces_[6].naks_per_s = 20;
  Pass(5);
  EXPECT_EQ(trips_.size(), 1u) << "4 of 7";
}

// A fabric on which everybody gets NAKs: moves are not to blame.
TEST_F(BreakerOnTraces, NoiseThatAllFlowsHaveIsNoHarm) {
  for (int seed = 0; seed < 20; ++seed) {
    random_.seed(static_cast<unsigned>(seed));
    for (Trace& trace : traces_) trace.naks_per_s = 10;
    Pass(5);
    for (size_t i = 0; i < 4; ++i) {
      Move(i, 1, static_cast<uint8_t>(2 + seed));
      Pass(1);
    }
    Pass(70);
  }
  EXPECT_EQ(verdicts_.size(), 80u);
  EXPECT_LE(Harmful(), 1);
  EXPECT_TRUE(trips_.empty());
}

TEST_F(BreakerOnTraces, StandstillIsHarm) {
  Pass(5);
  for (size_t i = 0; i < 2; ++i) {
    Move(i, 1, 2);
    traces_[i] = {.bytes_per_s = 0, .stands = true};
    Pass(1);
  }
  EXPECT_EQ(trips_.size(), 1u);
}

TEST_F(BreakerOnTraces, AStandstillOfAllFlowsIsNoMovesFault) {
  Pass(5);
  Move(0, 1, 2);
  Move(1, 1, 2);
  for (Trace& trace : traces_) trace = {.bytes_per_s = 0, .stands = true};
  Pass(10);
  EXPECT_EQ(Harmful(), 0);
  EXPECT_TRUE(trips_.empty());
}

TEST_F(BreakerOnTraces, AThirdOfTheGoodputIsHarm) {
  Pass(5);
  for (size_t i = 0; i < 2; ++i) {
    Move(i, 1, 2);
    traces_[i].bytes_per_s = 3e5;
  }
  Pass(2.5);
  EXPECT_TRUE(verdicts_.empty()) << "not settled";
  Pass(2);
  EXPECT_EQ(trips_.size(), 1u);
}

// The job's own phase: all flows slow down alike, or stop with nothing under way.
TEST_F(BreakerOnTraces, WhatTheOthersLoseTooIsNoHarm) {
  Pass(5);
  Move(0, 1, 2);
  Move(1, 1, 2);
  for (Trace& trace : traces_) trace.bytes_per_s = 2e5;
  Pass(5);
  EXPECT_EQ(Harmful(), 0);
  Move(2, 1, 2);
  Move(3, 1, 2);
  for (size_t i = 0; i < flows_.size(); ++i) {
    traces_[i].bytes_per_s = 0;
    flows_[i].in_flight = false;
  }
  Pass(5);
  EXPECT_EQ(Harmful(), 0);
}

TEST_F(BreakerOnTraces, RearmsAfterTheHoldOrByHand) {
  Pass(5);
  for (size_t i = 0; i < 2; ++i) {
    Move(i, 1, 2);
    traces_[i].naks_per_s = 20;
    Pass(1);
  }
  ASSERT_TRUE(breaker_.tripped());
  EXPECT_GT(breaker_.RearmsAtNs(), NowNs());
  EXPECT_FALSE(breaker_.Rearmed(NowNs()));
  EXPECT_TRUE(breaker_.Rearmed(breaker_.RearmsAtNs()));
  EXPECT_FALSE(breaker_.tripped());
  EXPECT_EQ(breaker_.Judged(NowNs()), 0);
  for (size_t i = 2; i < 4; ++i) {
    Move(i, 1, 2);
    traces_[i].naks_per_s = 20;
    Pass(1);
  }
  EXPECT_EQ(trips_.size(), 2u);
  breaker_.Reset();
  EXPECT_FALSE(breaker_.tripped());
}

}  // namespace
}  // namespace cw::control
