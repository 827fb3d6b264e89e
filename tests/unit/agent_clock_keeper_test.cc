// SPDX-License-Identifier: Apache-2.0
//
// The keeper of fleet time: whom it tells what, and whose probes it hurries. And the clocks of NICs beside it.
#include "userspace/agent/fleet_clock/clock_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/nics/nic_clocks.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class KeeperPart : public ::testing::Test {
 protected:
  KeeperPart() { keeper_.SetPeers({"h2"}, 1); }

  // A second pair to the same peer.
  PairState& AddPair(uint32_t index) {
    auto state = std::make_unique<PairState>();
    state->index = index;
    state->peer = "h2";
    state->ifindex = OnePair::kIfindex;
    return *(host_.pairs[index] = std::move(state));
  }

  OnePair host_;
  cw_local_clock record_{};
  std::shared_ptr<LineClock> clock_ = std::make_shared<LineClock>(std::make_shared<MonotonicClock>(), &record_);
  ManualClock monotonic_{kSecond};
  std::vector<std::pair<uint32_t, probe::ClockPace>> paces_;
  int rounds_begun_ = 0;
  ClockKeeper keeper_{{.host = "h1", .session = 1},
                      clock_,
                      monotonic_,
                      host_.pairs,
                      host_.nics,
                      host_.mail,
                      host_.events,
                      {.set_pace = [this](uint32_t pair, probe::ClockPace pace) { paces_.emplace_back(pair, pace); },
                       .before_round = [this] { ++rounds_begun_; }}};
};

TEST_F(KeeperPart, AHostHearsOneClaimARoundOverEachOfItsPairsInTurn) {
  AddPair(host_.index + 1).last_reply_ns = 1;
  host_.pair().last_reply_ns = 1;
  std::vector<uint32_t> over;
  for (int round = 0; round < 2; ++round) {
    keeper_.Round();
    for (const auto& [pair, body] : host_.mail.all) {
      if (std::holds_alternative<probe::ClockClaim>(body)) over.push_back(pair);
    }
    host_.mail.all.clear();
  }
  EXPECT_THAT(over, ElementsAre(host_.index, host_.index + 1));
  EXPECT_EQ(rounds_begun_, 2);
}

TEST_F(KeeperPart, AHostThatNeverAnsweredHearsNothing) {
  keeper_.Round();
  EXPECT_THAT(host_.mail.all, IsEmpty());
}

TEST_F(KeeperPart, OnePairOfAHostIsProbedOftenAndStaysTheOne) {
  AddPair(host_.index + 1).last_reply_ns = 1;
  host_.pair().last_reply_ns = 1;
  keeper_.ChoosePairs();
  EXPECT_TRUE(host_.pair().measures_clock);
  EXPECT_FALSE(host_.pairs[host_.index + 1]->measures_clock);
  EXPECT_THAT(paces_, ElementsAre(std::pair(host_.index, probe::ClockPace::kYoung)));
  host_.pair().estimate.line_age_ns = 10 * kSecond;
  keeper_.ChoosePairs();
  EXPECT_THAT(paces_, SizeIs(2));
  EXPECT_EQ(paces_[1], std::pair(host_.index, probe::ClockPace::kSteady));
  host_.pairs[host_.index + 1]->estimate.state = sync::SyncState::kSynchronised;
  keeper_.ChoosePairs();
  EXPECT_TRUE(host_.pairs[host_.index + 1]->measures_clock) << "it is known, the other one is not";
  EXPECT_FALSE(host_.pair().measures_clock);
}

TEST_F(KeeperPart, AnOutputThatCannotBeOpenedIsAnEventAndNoMore) {
  ClockKeeper keeper({.host = "h1", .output = {.page = "/nowhere/at/all", .pin = "/nowhere/pin", .clock = clock_}},
                     clock_, monotonic_, host_.pairs, host_.nics, host_.mail, host_.events,
                     {.set_pace = [](uint32_t, probe::ClockPace) {}, .before_round = [] {}});
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("fleet time is not published"));
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kAlert);
  keeper.Round();
}

// Hundreds of idle pairs to hosts that fleet time does not rest on, each probed ten times a second.
class KeeperOfManyPairs : public ::testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0;
  static constexpr int64_t kLoop = 10'000'000;

  explicit KeeperOfManyPairs(uint32_t pairs = 300) {
    host_.pairs.clear();
    for (uint32_t i = 0; i < pairs; ++i) {
      auto state = std::make_unique<PairState>();
      state->index = kFirst + i;
      state->peer = "far";
      host_.pairs[kFirst + i] = std::move(state);
    }
  }
  void RunUntil(int64_t end_ns) {
    for (; time_->now_ns < end_ns; time_->now_ns += kLoop, monotonic_.Advance(kLoop)) {
      const int64_t now = time_->now_ns, turn = now / kLoop % 10;
      for (auto& [index, pair] : host_.pairs) {
        if (index % 10 != turn) continue;
        const int64_t there = now - 10'000 + 7'000'000 + 4'900 + index * 7919 % 97;
        pair->AddTrip({now - 10'000, there, there + 200, now}, std::nullopt, 0, 0);
      }
      const int64_t before_ns = CpuNs();
      keeper_.Update();
      cpu_ns_ += CpuNs() - before_ns;
      int64_t at_once = 0;
      for (const auto& [index, pair] : host_.pairs) at_once += pair->updated_ns == monotonic_.NowNs();
      updates_ += at_once;
      most_at_once_ = std::max(most_at_once_, at_once);
    }
  }

  static int64_t CpuNs() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * kSecond + t.tv_nsec;
  }

  // Local time is as simulated, whatever CLOCK_MONOTONIC says.
  struct SimulatedTime final : Clock {
    int64_t NowNs() const override { return now_ns; }
    int64_t AtNs(int64_t) const override { return now_ns; }
    int64_t now_ns = kSecond;
  };

  OnePair host_;
  cw_local_clock record_{};
  std::shared_ptr<SimulatedTime> time_ = std::make_shared<SimulatedTime>();
  std::shared_ptr<LineClock> clock_ = std::make_shared<LineClock>(time_, &record_);
  ManualClock monotonic_{kSecond};
  ClockKeeper keeper_{{.host = "h1", .session = 1},
                      clock_,
                      monotonic_,
                      host_.pairs,
                      host_.nics,
                      host_.mail,
                      host_.events,
                      {.set_pace = [](uint32_t, probe::ClockPace) {}, .before_round = [] {}}};
  int64_t updates_ = 0, most_at_once_ = 0, cpu_ns_ = 0;
};

TEST_F(KeeperOfManyPairs, KnownLinesThatNobodyNeedsAreFittedSeldomAndAtOnceWhenOneDoes) {
  RunUntil(9 * kSecond);
  for (const auto& [index, pair] : host_.pairs) {
    ASSERT_TRUE(pair->estimate.settled) << index;
    ASSERT_NEAR(static_cast<double>(pair->estimate.offset_ns), 7'000'000, 500) << index;
  }
  updates_ = most_at_once_ = 0;
  RunUntil(15 * kSecond);
  EXPECT_LE(updates_, 6 * 300) << "in 6 s; each ten times a second would be 18,000";
  EXPECT_LE(most_at_once_, 8);
  for (const auto& [index, pair] : host_.pairs) {
    EXPECT_LT(monotonic_.NowNs() - pair->updated_ns, 3 * kSecond) << index;
  }
  PairState& last = *host_.pairs.rbegin()->second;
  last.active = true;
  keeper_.Update();
  EXPECT_EQ(last.updated_ns, monotonic_.NowNs());
}

TEST_F(KeeperOfManyPairs, PairsThatAreBusyTakeNoTurnOfThose) {
  for (const uint32_t busy : {40u, 200u, 299u}) host_.pairs[busy]->active = true;
  RunUntil(15 * kSecond);
  for (const auto& [index, pair] : host_.pairs) {
    EXPECT_LT(monotonic_.NowNs() - pair->updated_ns, 3 * kSecond) << index;
  }
}

class KeeperOfAThousandPairs : public KeeperOfManyPairs {
 protected:
  KeeperOfAThousandPairs() : KeeperOfManyPairs(1000) {}
};

// Prints what docs/clock-scale.md says. Each line fitted ten times a second would take twenty times as much.
TEST_F(KeeperOfAThousandPairs, IdleLinesTakeLittleOfACore) {
  RunUntil(7 * kSecond);
  for (const auto& [index, pair] : host_.pairs) ASSERT_TRUE(pair->estimate.settled) << index;
  updates_ = cpu_ns_ = 0;
  RunUntil(13 * kSecond);
  EXPECT_LE(updates_, 6 * 600);
  const double share = static_cast<double>(cpu_ns_) / (6.0 * kSecond);
  std::printf("1,000 idle pairs: %.2f %% of a core for %d fits a second, %.0f us each\n", 100 * share,
              static_cast<int>(updates_ / 6), static_cast<double>(cpu_ns_) / static_cast<double>(updates_) * 1e-3);
  EXPECT_LT(share, 0.3);
}

class NicClocksPart : public ::testing::Test {
 protected:
  // A NIC's clock that does not answer.
  class MuteClock final : public sync::NicClock {
   public:
    std::optional<sync::CrossStamp> Read() override { return std::nullopt; }
  };

  OnePair host_;
  std::map<uint32_t, cw_nic_line> lines_;
  probe_verbs::ArrivalStamps stamps_;
  std::shared_ptr<ManualClock> local_ = std::make_shared<ManualClock>(kSecond);
  NicClocks clocks_{host_.nics,
                    host_.pairs,
                    local_,
                    {.put =
                         [this](uint32_t ifindex, const cw_nic_line& line) {
                           lines_[ifindex] = line;
                           return true;
                         },
                     .erase = [this](uint32_t ifindex) { lines_.erase(ifindex); }},
                    [this](const NicState&) { return stamps_; },
                    [](const std::shared_ptr<const Clock>&) { return std::make_unique<MuteClock>(); }};
};

TEST_F(NicClocksPart, WhatADevicesStampsMayBeOffByCountsForThePairsOfItsNic) {
  stamps_ = {.by_device = true, .error_ns = 40, .bound_ns = 90};
  PairState& other = *(host_.pairs[99] = std::make_unique<PairState>());
  other.ifindex = OnePair::kIfindex + 1;
  clocks_.Look();
  EXPECT_EQ(host_.pair().nic_error_ns, 40);
  EXPECT_EQ(host_.pair().nic_bound_ns, 90);
  EXPECT_EQ(other.nic_error_ns, 0);
}

TEST_F(NicClocksPart, ALineOfAClockThatDoesNotAnswerIsTakenAway) {
  NicState& nic = host_.nics[0];
  clocks_.Open(nic);
  ASSERT_NE(nic.node, nullptr);
  nic.attach.nic_stamps = true;
  nic.has_line = true;
  lines_[nic.ifindex] = {};
  clocks_.Look();
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_FALSE(nic.has_line);
}

TEST_F(NicClocksPart, OneThatIsNotWantedIsNotOpenedAndSaysSo) {
  NicState& nic = host_.nics[0];
  nic.config.clock = "none";
  clocks_.Open(nic);
  EXPECT_EQ(nic.node, nullptr);
  v1::ClockReply reply;
  clocks_.Fill(reply);
  ASSERT_EQ(reply.nics_size(), 1);
  EXPECT_THAT(reply.nics(0).note(), HasSubstr("is not read"));
}

}  // namespace
}  // namespace cw::agent
