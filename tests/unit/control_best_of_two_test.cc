// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/best_of_two.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>

#include "tests/unit/control_fabric_sim.h"
#include "userspace/control/contention.h"
#include "userspace/control/contention_rules.h"
#include "userspace/control/explain.h"

namespace cw::control {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

constexpr double kBaseNs = 100'000;  // so that a path queues from 50 us on
const PairKey kPair{Addr::FromV4(1), Addr::FromV4(2)};
const FlowKey kFlow{Addr::FromV4(1), Addr::FromV4(2), 7};

FreshLook Look(uint8_t slot, double queue_us, int samples = 4, bool usable = true) {
  return {.slot = slot, .usable = usable, .samples = samples, .queue_ns = 1e3 * queue_us, .base_ns = kBaseNs};
}

Reprobe Seen(const FreshLook& first, const FreshLook& second, bool stays = true) {
  return {.pair = kPair, .flow = kFlow, .stays = stays, .candidates = {first, second}};
}

uint8_t To(const FreshLook& first, const FreshLook& second, bool stays = true) {
  return Settle({}, Seen(first, second, stays)).to;
}

TEST(BestOfTwo, TheFirstChoiceStandsUnlessItQueuesAndTheOtherQueuesClearlyLess) {
  EXPECT_EQ(To(Look(1, 0), Look(2, 0)), 1);
  EXPECT_EQ(To(Look(1, 40), Look(2, 0)), 1) << "below what counts as a queue";
  EXPECT_EQ(To(Look(1, 400), Look(2, 0)), 2);
  EXPECT_EQ(To(Look(1, 400), Look(2, 330)), 1) << "a few probes tell no such difference";
  EXPECT_EQ(To(Look(1, 400), Look(2, 310)), 2);
  EXPECT_EQ(To(Look(1, 0), Look(2, 400)), 1);
}

TEST(BestOfTwo, WithoutAnAnswerTheLastWindowCounts) {
  EXPECT_EQ(To(Look(1, 20, 0), Look(2, 400)), 1);
  EXPECT_EQ(To(Look(1, 400), Look(2, 20, 0)), 2);
}

TEST(BestOfTwo, APathThatIsNotToBeUsedAnyMoreIsNotTaken) {
  EXPECT_EQ(To(Look(1, 0, 0, false), Look(2, 400)), 2);
  EXPECT_EQ(To(Look(1, 400), Look(2, 0, 0, false)), 1);
  EXPECT_EQ(To(Look(1, 0, 0, false), Look(2, 0, 0, false)), kSlotNone);
  EXPECT_EQ(To(Look(1, 0), Look(2, 0), false), kSlotNone) << "the kernel took the flow elsewhere";
}

TEST(BestOfTwo, TheMoveTellsBothDelays) {
  const Move decided{.pair = kPair,
                     .flow = kFlow,
                     .from = 0,
                     .to = 1,
                     .force = true,
                     .gain = 3,
                     .why = "as the windows showed",
                     .evidence = {{"own_flows", "2"}},
                     .second = 2,
                     .second_gain = 1.28};
  Reprobe seen = Seen(Look(1, 5), Look(2, 30, 3));
  Move made = SettledMove({}, decided, seen, Settle({}, seen));
  EXPECT_EQ(made.to, 1);
  EXPECT_EQ(made.why, decided.why);
  for (const auto& [name, value] : Evidence{{"own_flows", "2"},
                                            {"other_path", "2"},
                                            {"fresh_target_queue_us", "5.0"},
                                            {"fresh_target_probes", "4"},
                                            {"fresh_other_queue_us", "30.0"},
                                            {"fresh_other_probes", "3"},
                                            {"fresh_delays", "of both candidates"}})
    EXPECT_THAT(made.evidence, testing::Contains(Pair(name, value)));

  seen = Seen(Look(1, 400), Look(2, 30, 0));
  made = SettledMove({}, decided, seen, Settle({}, seen));
  EXPECT_EQ(made.to, 2);
  EXPECT_DOUBLE_EQ(made.gain, 1.28);
  EXPECT_FALSE(made.force) << "the gain that it promises is not worth a go-back-N";
  EXPECT_THAT(made.why, HasSubstr("path 1 was preferred, but just before the move path 2 queues less"));
  EXPECT_THAT(made.evidence, testing::Contains(Pair("fresh_target_probes", "0")));
  EXPECT_THAT(made.evidence, testing::Contains(Pair("fresh_delays", HasSubstr("the last window's delay"))));
}

// One flow on path 0, which queues; paths 1 and 2 do not.
class Host {
 public:
  std::optional<Move> UntilMove() {
    for (int w = 0; w < 200; ++w) {
      const Decision decision = Window();
      if (!decision.moves.empty()) return decision.moves[0];
    }
    return std::nullopt;
  }
  Decision Window(std::vector<Reprobe> reprobed = {}) {
    Observation seen{.now_ns = now_ns_ += 40'000'000, .window_ns = 40'000'000, .pairs = {}};
    PairObservation pair{.pair = kPair, .table_valid = true, .paths = {}, .flows = {}};
    constexpr std::array<double, 3> kQueueUs = {400, 2, 2};
    for (uint8_t s = 0; s < kQueueUs.size(); ++s) {
      const double noise = 1 + 0.02 * static_cast<double>((now_ns_ / 40'000'000 + s) % 3);
      pair.paths.push_back({.slot = s,
                            .usable = true,
                            .queue_samples = 40,
                            .queue_ns = kQueueUs[s] * 1e3 * noise,
                            .base_ns = 6'000,
                            .links = {}});
    }
    pair.flows.push_back({.key = kFlow, .slot = slot, .bytes = slot == 0 ? 500'000u : 900'000u, .cnps = 0});
    seen.pairs.push_back(pair);
    seen.reprobed = std::move(reprobed);
    return DecideMoves(seen, state);
  }
  // How many windows until a move was confirmed; -1: it was not.
  int UntilConfirmed() {
    for (int w = 0; w < 20; ++w) {
      for (const Finding& finding : Window().findings) {
        if (finding.kind == Finding::Kind::kMoveConfirmed) return w;
      }
    }
    return -1;
  }

  uint8_t slot = 0;
  ContentionState state{{}, 1};

 private:
  int64_t now_ns_ = 1'000'000'000;
};

TEST(BestOfTwo, TheRuleNamesBothCandidatesAndWaitsForTheOneThatWasTaken) {
  Host host;
  const std::optional<Move> move = host.UntilMove();
  ASSERT_TRUE(move.has_value());
  ASSERT_NE(move->second, kSlotNone);
  EXPECT_EQ(move->to + move->second, 3) << "paths 1 and 2";
  EXPECT_GE(move->second_gain, ContentionRules().min_gain);
  EXPECT_NEAR(move->second_queue_ns, 2e3, 200);
  const Decision decision = host.Window({Seen(Look(move->to, 400), Look(move->second, 3))});
  ASSERT_EQ(decision.settled.size(), 1u);
  EXPECT_EQ(decision.settled[0].first, move->to);
  EXPECT_EQ(decision.settled[0].to, move->second);
  host.slot = move->second;
  EXPECT_GE(host.UntilConfirmed(), 0) << "what the move brought is measured";
}

TEST(BestOfTwo, AMoveThatWasGivenUpIsNotWaitedFor) {
  for (const bool given_up : {false, true}) {
    Host host;
    const std::optional<Move> move = host.UntilMove();
    ASSERT_TRUE(move.has_value());
    const Decision decision = host.Window({Seen(Look(move->to, 0), Look(move->second, 0), !given_up)});
    ASSERT_EQ(decision.settled.size(), 1u);
    EXPECT_EQ(decision.settled[0].to, given_up ? kSlotNone : move->to);
    const bool waits = Explain(host.state, kFlow).standing == Standing::kAsked && decision.moves.empty();
    EXPECT_NE(waits, given_up);
  }
}

TEST(BestOfTwo, WordsOfAMoveThatNobodyWaitsForChangeNothing) {
  Host told, untold;
  for (int w = 0; w < 60; ++w) {
    const Decision decision = told.Window({Seen(Look(9, 0), Look(8, 0), false)});
    EXPECT_EQ(decision.moves.size(), untold.Window().moves.size());
  }
  EXPECT_EQ(Snapshot(told.state), Snapshot(untold.state));
}

// Whole fabrics, with the last look and without: neither balance nor calm suffers from it.
TEST(BestOfTwo, TheLastLookCostsNothing) {
  constexpr int kSeeds = 40;
  double slowest_mbps[2] = {}, moves[2] = {};
  int turned = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool look : {false, true}) {
      const SimResult result = Simulate(
          {.hosts = 4, .look_again = look, .placement = {}, .seed = seed, .on_start = {}, .on_window = {}}, {});
      slowest_mbps[look] += result.slowest_bps / 1e6 / kSeeds;
      moves[look] += static_cast<double>(result.moves) / kSeeds;
      turned += result.turned;
    }
  }
  std::printf("slowest flow %.1f Mbit/s without, %.1f with the last look; %.1f and %.1f moves, %d turned in all\n",
              slowest_mbps[0], slowest_mbps[1], moves[0], moves[1], turned);
  EXPECT_GT(turned, 0);
  EXPECT_GE(slowest_mbps[1], 0.97 * slowest_mbps[0]);
  EXPECT_LE(moves[1], 1.2 * moves[0]);
}

}  // namespace
}  // namespace cw::control
