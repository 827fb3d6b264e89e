// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/control_fabric_sim.h"
#include "userspace/control/contention.h"
#include "userspace/control/contention_state.h"

namespace cw::control {
namespace {

constexpr int64_t kWindowNs = 40'000'000;
constexpr double kLink = 400e6;

// One pair with four paths; windows are made by hand.
class Hand {
 public:
  explicit Hand(const ContentionRules& rules = {}, uint64_t seed = 1) : state_(rules, seed) {}

  struct Flow {
    uint8_t slot;
    double bps;
    bool locked = false;
    uint64_t cnps = 3;
  };

  Decision Window() {
    Observation o{.now_ns = now_ns_ += kWindowNs, .window_ns = kWindowNs, .line_rate_bps = line_rate_bps};
    PairObservation pair{.pair = Pair(), .table_valid = table_valid};
    for (uint8_t s = 0; s < queue_us.size(); ++s) {
      const double noise = 1 + 0.02 * ((now_ns_ / kWindowNs + s) % 3);
      pair.paths.push_back({.slot = s,
                            .usable = unusable != s,
                            .queue_samples = 40,
                            .queue_ns = queue_us[s] * 1e3 * noise,
                            .base_ns = 6'000,
                            .ecn_samples = marked.empty() ? 0 : 40,
                            .marked = marked.empty() ? 0 : marked[s],
                            .links = links.empty() ? std::vector<uint64_t>{} : links[s]});
    }
    for (const auto& [qpn, f] : flows) {
      pair.flows.push_back({.key = Key(qpn),
                            .slot = f.slot,
                            .bytes = static_cast<uint64_t>(f.bps * 0.04 / 8),
                            .cnps = f.cnps,
                            .locked = f.locked});
    }
    o.pairs.push_back(pair);
    return DecideMoves(o, state_);
  }

  // Runs windows and makes the moves; returns all of them.
  std::vector<Move> Run(int windows, bool make = true) {
    std::vector<Move> all;
    for (int w = 0; w < windows; ++w) {
      for (const Move& m : Window().moves) {
        if (make) flows[m.flow.dqpn].slot = m.to;
        all.push_back(m);
      }
    }
    return all;
  }

  static PairKey Pair() { return {Addr::FromV4(1), Addr::FromV4(2)}; }
  static FlowKey Key(uint32_t qpn) { return {Addr::FromV4(1), Addr::FromV4(2), qpn}; }

  std::map<uint32_t, Flow> flows;
  std::vector<double> queue_us = {400, 20, 400, 400};
  std::vector<std::vector<uint64_t>> links;
  std::vector<int> marked;  // of 40 probes per window; empty: not told
  int unusable = -1;
  bool table_valid = true;
  double line_rate_bps = 0;

 private:
  int64_t now_ns_ = 1'000'000'000;
  ContentionState state_;
};

TEST(ContentionRule, AFlowLeavesAQueueForAnIdlePathAndSaysWhy) {
  Hand h;
  h.flows = {{7, {0, 100e6}}};
  const auto moves = h.Run(40, false);
  ASSERT_FALSE(moves.empty());
  EXPECT_EQ(moves[0].flow, Hand::Key(7));
  EXPECT_EQ(moves[0].from, 0);
  EXPECT_EQ(moves[0].to, 1);
  EXPECT_TRUE(moves[0].force);
  EXPECT_THAT(moves[0].why, testing::HasSubstr("path 1"));
  EXPECT_FALSE(moves[0].evidence.empty());
}

TEST(ContentionRule, NothingMovesWithoutCongestion) {
  Hand h;
  h.queue_us = {5, 0, 5, 5};  // below the floor
  h.flows = {{7, {0, 100e6, false, 0}}, {8, {0, 100e6, false, 0}}};
  EXPECT_TRUE(h.Run(100).empty());
}

TEST(ContentionRule, OneWindowIsNoEvidence) {
  Hand h;
  h.flows = {{7, {0, 100e6, false, 0}}};
  for (int w = 0; w < 100; ++w) {
    h.queue_us[0] = w % 2 == 0 ? 400 : 3;
    EXPECT_TRUE(h.Window().moves.empty()) << w;
  }
}

TEST(ContentionRule, EqualPathsAreNoReason) {
  Hand h;
  h.queue_us = {400, 395, 402, 399};
  h.flows = {{7, {0, 100e6}}};
  EXPECT_TRUE(h.Run(100).empty());
}

TEST(ContentionRule, LockedFlowsUntrustedTablesAndDeadPathsAreLeftAlone) {
  Hand locked;
  locked.flows = {{7, {0, 100e6, true}}};
  EXPECT_TRUE(locked.Run(100).empty());
  Hand untrusted;
  untrusted.table_valid = false;
  untrusted.flows = {{7, {0, 100e6}}};
  EXPECT_TRUE(untrusted.Run(100).empty());
  Hand dead;
  dead.unusable = 1;
  dead.flows = {{7, {0, 100e6}}};
  EXPECT_TRUE(dead.Run(100).empty());
}

// Switches that mark before they queue: all delays are alike.
TEST(ContentionRule, AFlowLeavesALinkThatMarksForOneThatNeverDoes) {
  Hand h;
  h.queue_us = {3, 2.99, 3, 3};
  h.flows = {{7, {0, 100e6}}};
  h.marked = {2, 0, 1, 2};
  const auto moves = h.Run(60, false);
  ASSERT_FALSE(moves.empty());
  EXPECT_EQ(moves[0].to, 1);
  EXPECT_THAT(moves[0].why, testing::HasSubstr("marks no probes"));
  Hand untold;
  untold.queue_us = h.queue_us;
  untold.flows = h.flows;
  EXPECT_TRUE(untold.Run(200).empty());
  Hand busy;
  busy.queue_us = h.queue_us;
  busy.flows = h.flows;
  busy.marked = {2, 1, 1, 1};  // fewer marks are no proof of fewer flows
  EXPECT_TRUE(busy.Run(200).empty());
  Hand over;
  over.queue_us = h.queue_us;
  over.flows = h.flows;
  over.marked = h.marked;
  EXPECT_TRUE(over.Run(4).empty());
  over.marked = {0, 0, 0, 0};  // what marked it has ended
  EXPECT_TRUE(over.Run(200).empty());
}

// A flow that is alone marks its own link; where no other gives it more, it knows that it has all there is.
TEST(ContentionRule, MarksOfItsOwnSendAFlowRoundOnlyOnce) {
  Hand h;
  h.queue_us = {3, 3, 3, 3};
  h.flows = {{7, {0, 100e6}}};
  int moves = 0;
  for (int w = 0; w < 1000; ++w) {
    h.marked = {0, 0, 0, 0};
    h.marked[h.flows[7].slot] = 2;
    moves += static_cast<int>(h.Run(1).size());
  }
  EXPECT_GE(moves, 1);
  EXPECT_LE(moves, 2);
}

// A host with twelve receivers behind the same spines. Each path's delay swings too much to say anything alone; what
// all paths over a spine have in common is its queue.
struct ManyReceivers {
  explicit ManyReceivers(uint64_t seed) : random(seed), state({}, seed) {}

  Decision Window(double spine0_us, double receiver0_us) {
    std::normal_distribution<double> noise(0, 120);
    seen = {.now_ns = seen.now_ns + kWindowNs, .window_ns = kWindowNs};
    for (uint32_t receiver = 0; receiver < 12; ++receiver) {
      PairObservation pair{.pair = {Addr::FromV4(1), Addr::FromV4(2 + receiver)}, .table_valid = true};
      for (uint8_t s = 0; s < 4; ++s) {
        const double us = 300 + noise(random) + (s == 0 ? spine0_us : 0) + (receiver == 0 ? receiver0_us : 0);
        pair.paths.push_back({.slot = s,
                              .usable = true,
                              .queue_samples = 40,
                              .queue_ns = std::max(0.0, us) * 1e3,
                              .base_ns = 6'000,
                              .links = {100u + s, 1000u + 10 * receiver + s}});
      }
      if (receiver == 0) pair.flows.push_back({.key = Hand::Key(7), .slot = slot, .bytes = 500'000, .cnps = 3});
      seen.pairs.push_back(std::move(pair));
    }
    return DecideMoves(seen, state);
  }
  // Of the first pair, us.
  double Fitted(uint8_t path) const { return FitPaths(seen, state.impl()).at({Hand::Pair(), path}).queue_ns / 1e3; }
  double Own(uint8_t path) { return state.impl().paths[{Hand::Pair(), path}].queue.Mean() / 1e3; }

  std::mt19937_64 random;
  ContentionState state;
  Observation seen;
  uint8_t slot = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(ContentionRule, ALinksQueueIsToldByAllPathsThatTakeIt) {
  constexpr double kSpineUs = 150;
  std::vector<double> fitted, own;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ManyReceivers host(seed);
    for (int w = 0; w < kQueueWindows; ++w) host.Window(kSpineUs, 0);
    fitted.push_back(std::abs(host.Fitted(0) - host.Fitted(1) - kSpineUs) / kSpineUs);
    own.push_back(std::abs(host.Own(0) - host.Own(1) - kSpineUs) / kSpineUs);
  }
  std::printf("a spine's queue: fitted off by %.0f %% (median), the path's own delay by %.0f %%\n",
              100 * Median(fitted), 100 * Median(own));
  EXPECT_LE(Median(fitted), 0.2);
  EXPECT_LT(Median(fitted), 0.7 * Median(own));
}

TEST(ContentionRule, LinksThatDoNotQueueAndReceiversLinksMoveNobody) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const double receiver_us : {0.0, 400.0}) {
      ManyReceivers host(seed);
      for (int w = 0; w < 100; ++w) {
        for (const Move& m : host.Window(0, receiver_us).moves) {
          EXPECT_THAT(m.why, testing::Not(testing::HasSubstr("links of that path"))) << seed;
          host.slot = m.to;
        }
      }
    }
  }
}

TEST(ContentionRule, AFlowAtLineRateStays) {
  Hand h;
  h.line_rate_bps = kLink;
  h.flows = {{7, {0, 0.95 * kLink}}};
  EXPECT_TRUE(h.Run(100).empty());
}

TEST(ContentionRule, OwnFlowsSpreadOnePerPathBeforeTwoAtMostOnePerWindow) {
  Hand h;
  h.queue_us = {400, 400, 400, 400};
  for (uint32_t q = 0; q < 8; ++q) h.flows[q] = {0, kLink / 8};
  int last = -1;
  for (int w = 0; w < 200; ++w) {
    const Decision d = h.Window();
    EXPECT_LE(d.moves.size(), 1u);
    for (const Move& m : d.moves) {
      h.flows[m.flow.dqpn].slot = m.to;
      last = w;
    }
    std::map<int, int> count;
    for (const auto& [q, f] : h.flows) ++count[f.slot];
    for (auto& [q, f] : h.flows) f.bps = kLink / count[f.slot];
  }
  std::map<int, int> count;
  for (const auto& [q, f] : h.flows) ++count[f.slot];
  for (int s = 0; s < 4; ++s) EXPECT_EQ(count[s], 2) << s;
  EXPECT_LE(last, 30);
}

TEST(ContentionRule, APairNeverMovesAllItsFlowsInOneWindow) {
  Hand h({.max_moved_share = 1});
  h.flows = {{7, {0, 100e6}}, {8, {0, 100e6}}, {9, {0, 100e6}}};
  for (int w = 0; w < 60; ++w) EXPECT_LT(h.Window().moves.size(), 3u);
}

TEST(ContentionRule, AMoveThatBroughtNothingIsReportedAndNotRepeated) {
  Hand h;
  h.flows = {{7, {0, 100e6}}};
  int moves = 0, nothing = 0;
  for (int w = 0; w < 90; ++w) {  // 3.6 s: within the memory
    const Decision d = h.Window();
    for (const Move& m : d.moves) {
      ++moves;
      h.flows[7].slot = m.to;
      std::swap(h.queue_us[m.from], h.queue_us[m.to]);  // the queue follows the flow: it is its own
    }
    for (const Finding& f : d.findings) nothing += f.kind == Finding::Kind::kMoveBroughtNothing;
  }
  EXPECT_GE(moves, 1);
  EXPECT_LE(moves, 3);  // each other path once at the most
  EXPECT_EQ(nothing, moves);
}

TEST(ContentionRule, AGainIsConfirmed) {
  Hand h;
  h.flows = {{7, {0, 100e6}}};
  int confirmed = 0;
  for (int w = 0; w < 60; ++w) {
    const Decision d = h.Window();
    for (const Move& m : d.moves) {
      h.flows[7] = {m.to, 200e6, false, 0};
      h.queue_us = {20, 5, 400, 400};
    }
    for (const Finding& f : d.findings) confirmed += f.kind == Finding::Kind::kMoveConfirmed;
  }
  EXPECT_EQ(confirmed, 1);
}

// Where everything is full, each place is soon as bad as the last one.
class Wanderer {
 public:
  explicit Wanderer(const ContentionRules& rules) : h_(rules) { h_.flows = {{7, {0, 100e6}}}; }
  // Windows in which it moved.
  std::vector<int> Run(int windows, bool full) {
    std::vector<int> moved;
    for (int w = 0; w < windows; ++w) {
      const uint8_t at = h_.flows[7].slot;
      const bool fresh = ++on_slot_ < 9;
      h_.flows[7] = {at, fresh || !full ? 200e6 : 100e6, false, full && !fresh ? 3u : 0u};
      h_.queue_us = {20, 20, 20, 20};
      if (full && !fresh) h_.queue_us[at] = 400;
      for (const Move& m : h_.Window().moves) {
        h_.flows[7].slot = m.to;
        on_slot_ = 0;
        moved.push_back(w);
      }
    }
    return moved;
  }

 private:
  Hand h_;
  int on_slot_ = 9;
};

TEST(ContentionRule, AFlowThatWandersRestsTwiceAsLongEachTimeAndIsForgiven) {
  constexpr int kMinute = 60 * 25;
  const size_t restless = Wanderer({.restless_moves = 1000}).Run(kMinute, true).size();
  Wanderer wanderer({});
  const std::vector<int> moved = wanderer.Run(kMinute, true);
  ASSERT_GE(moved.size(), 5u);
  EXPECT_LT(moved[2], 4 * 25) << "the first moves wait for nothing";
  EXPECT_LT(moved.size() * 3, restless);
  EXPECT_GT(moved.back() - moved[moved.size() - 2], 8 * (moved[1] - moved[0]));
  EXPECT_TRUE(wanderer.Run(4 * kMinute, false).empty());
  const std::vector<int> again = wanderer.Run(kMinute, true);
  ASSERT_GE(again.size(), 3u);
  EXPECT_LT(again[2], 4 * 25) << "a minute of quiet for every four moves, and all is forgiven";
}

TEST(ContentionRule, LinksThatAllPathsShareDoNotCount) {
  Hand h;
  h.queue_us = {400, 400, 400, 400};
  h.links = {{10, 99}, {11, 99}, {12, 99}, {13, 99}};  // 99: the receiver's
  for (uint32_t q = 0; q < 4; ++q) h.flows[q] = {0, kLink / 4};
  EXPECT_FALSE(h.Run(40, false).empty());
}

TEST(ContentionRule, SamePathsSeenByTwoSlotsAreOne) {
  Hand h;
  h.queue_us = {400, 400};
  h.links = {{10, 20}, {10, 21}};  // both over link 10, which is no common link of …
  h.queue_us.push_back(400);
  h.links.push_back({11, 22});  // … this third path
  h.flows = {{1, {0, kLink / 2}}, {2, {0, kLink / 2}}};
  const auto moves = h.Run(60, false);
  ASSERT_FALSE(moves.empty());
  for (const Move& m : moves) EXPECT_EQ(m.to, 2);
}

TEST(ContentionRule, MiceStay) {
  Hand h;
  h.flows = {{7, {2, 300e6, false, 0}}, {8, {0, 1e6}}};
  h.queue_us = {400, 20, 3, 400};
  EXPECT_TRUE(h.Run(100).empty());
}

TEST(ContentionRule, IdleFlowsAndMiceAreNoLoad) {
  for (const double bps : {0.0, 1e6}) {
    Hand h;
    h.queue_us = {400, 400, 400, 400};
    for (uint32_t q = 0; q < 4; ++q) h.flows[q] = {static_cast<uint8_t>(q), 200e6};  // nothing to gain
    for (uint32_t q = 10; q < 18; ++q) h.flows[q] = {0, bps, false, 0};              // all with the first
    EXPECT_TRUE(h.Run(200).empty()) << bps;
  }
}

TEST(ContentionRule, IdleFlowsAreNoCandidates) {
  Hand h;
  h.flows = {{7, {0, 0, false, 0}}, {8, {0, 0, false, 0}}};
  EXPECT_TRUE(h.Run(200).empty());
}

TEST(ContentionRule, AFlowThatStopsIsLoadNoLongerAndOneThatGoesOnIsAgain) {
  Hand h;
  h.queue_us = {400, 400, 3, 3};
  h.unusable = 3;
  h.flows = {{1, {0, kLink / 2, true}}, {2, {0, kLink / 2}}, {3, {1, kLink, true}}};
  h.Run(20, false);  // knows what a link carries
  h.queue_us = {400, 400, 400, 400};
  h.flows[1].bps = 0;  // 2 has the path for itself, but does not use it
  EXPECT_TRUE(h.Run(60).empty());
  h.flows[1].bps = kLink / 2;
  const auto moves = h.Run(60, false);
  ASSERT_FALSE(moves.empty());
  EXPECT_EQ(moves[0].flow, Hand::Key(2));
}

TEST(ContentionRule, ASenderThatMissesAWindowNowAndThenIsJudgedAllTheSame) {
  Hand h;
  h.queue_us = {400, 3, 400, 400};
  h.flows = {{1, {0, kLink / 2}}, {2, {0, kLink / 2}}};
  std::vector<Move> moves;
  for (int w = 0; w < 100 && moves.empty(); ++w) {
    for (auto& [qpn, flow] : h.flows) flow.bps = w % 4 == 0 ? 0 : kLink / 2;
    moves = h.Window().moves;
  }
  EXPECT_FALSE(moves.empty());
}

TEST(ContentionRule, APathThatNothingIsKnownOfIsTriedForALargeGainOnly) {
  for (const double others : {0.5, 1.2}) {  // flows of others on every path
    Hand h;
    h.line_rate_bps = kLink;
    h.queue_us = {400, 400, 400, 400};
    const double share = kLink / (2 + others);
    h.flows = {{1, {0, share}}, {2, {0, share}}};
    EXPECT_EQ(h.Run(60, false).empty(), others > 1) << others;
  }
}

TEST(ContentionRule, SameSeedSameDecisions) {
  Hand a({}, 5), b({}, 5);
  a.flows = b.flows = {{7, {0, 100e6}}, {8, {0, 90e6}}, {9, {2, 80e6}}};
  const auto x = a.Run(100), y = b.Run(100);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].flow, y[i].flow);
    EXPECT_EQ(x[i].to, y[i].to);
  }
}

}  // namespace
}  // namespace cw::control
