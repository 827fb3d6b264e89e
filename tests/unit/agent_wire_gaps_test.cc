// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/wire_gaps.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

const PairKey kBetween{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
constexpr uint32_t kPairIndex = 3;

FlowKey FlowTo(uint32_t qpn) { return {.src = kBetween.local, .dst = kBetween.remote, .dqpn = qpn}; }

// What the peer's record says of the flow to 7, as one window after the other.
struct Peer {
  WireGaps gaps;
  uint64_t naks = 0, sent = 0;

  WireGaps::Count Window(uint64_t more_naks, uint64_t more_sent, uint32_t told_gaps, uint32_t told_packets) {
    gaps.Look(kPairIndex, FlowTo(7), naks += more_naks, sent += more_sent);
    if (!gaps.Questions().empty()) {
      gaps.Answered(kBetween, {true, {{.qpn = 7, .known = true, .gaps = told_gaps, .packets = told_packets}}});
    }
    return gaps.Look(kPairIndex, FlowTo(7), naks, sent);
  }
};

TEST(WireGaps, AsksForWhatIsNewAndForWhatWasRefused) {
  WireGaps gaps;
  EXPECT_FALSE(gaps.Look(kPairIndex, FlowTo(7), 5, 100).known);
  EXPECT_EQ(1u, gaps.Questions().size()) << "what to compare later answers with";
  gaps.Look(kPairIndex, FlowTo(7), 5, 200);
  EXPECT_TRUE(gaps.Questions().empty());
  gaps.Look(kPairIndex, FlowTo(7), 8, 300);
  const auto questions = gaps.Questions();
  ASSERT_EQ(1u, questions.size());
  EXPECT_EQ(kPairIndex, questions[0].first);
  ASSERT_EQ(1u, questions[0].second.flows.size());
  EXPECT_EQ(7u, questions[0].second.flows[0].qpn);
  int again = 0;
  for (int window = 0; window < 20; ++window) {
    gaps.Look(kPairIndex, FlowTo(7), 8, 300);
    again += !gaps.Questions().empty();
  }
  EXPECT_EQ(again, 3) << "until it is known, but not for ever";
}

TEST(WireGaps, IsAskedUntilItIsKnownOnceSomethingWasRefused) {
  Peer peer;
  EXPECT_FALSE(peer.Window(0, 1000, 5, 990).pending) << "nothing was refused";
  WireGaps::Count count = peer.Window(3, 1000, 8, 1987);
  EXPECT_TRUE(count.pending);
  for (int answers = 3; answers <= WireGaps::kKnownAfter; ++answers) {
    EXPECT_FALSE(count.known);
    count = peer.Window(0, 1000, 8, 1000u * static_cast<uint32_t>(answers) - 13);
  }
  EXPECT_TRUE(count.known);
  EXPECT_FALSE(count.pending);
}

TEST(WireGaps, WhatNeverCameIsMissing) {
  Peer peer;
  WireGaps::Count count;
  for (uint32_t window = 1; window <= 10; ++window) {
    count = peer.Window(10, 1000, 10 * window, 990 * window);  // ten of each window are lost
    if (count.known) {
      EXPECT_GE(count.missing, 10u * (window - 5));
      EXPECT_LE(count.missing, 10u * window);
    }
  }
  EXPECT_TRUE(count.known);
  EXPECT_EQ(count.gaps, 90u) << "since the first answer";
}

TEST(WireGaps, WhatIsOvertakenIsNotMissing) {
  Peer peer;
  for (uint32_t window = 1; window < 40; ++window) {
    const uint32_t under_way = window % 2 == 0 ? 20 : 25;
    const WireGaps::Count count = peer.Window(10, 1000, 10 * window, 1000 * window - under_way);
    EXPECT_EQ(count.missing, 0u) << "packets under way do not add up";
  }
}

// Its processor is busy: it counts what came until then, and a quick answer after that lacks more.
TEST(WireGaps, APeerThatCountsLateMakesNothingMissing) {
  Peer peer;
  for (uint32_t window = 1; window < 40; ++window) {
    const uint32_t late = (window * 7) % 5 == 0 ? 0 : (window * 37) % 90;
    EXPECT_EQ(peer.Window(10, 1000, 10 * window, 1000 * window + late).missing, 0u) << window;
  }
}

TEST(WireGaps, CountsPassThirtyTwoBits) {
  Peer peer;
  peer.sent = 0xffffff00;
  WireGaps::Count count;
  for (uint32_t window = 0; window < 10; ++window)
    count = peer.Window(1, 0x100, 0xfffffffe + window, 0xffffff00 + 0xf0 * (window + 1));
  EXPECT_TRUE(count.known);
  EXPECT_EQ(9u, count.gaps);
  EXPECT_EQ(0x10u * 5, count.missing);
}

TEST(WireGaps, APeersNewRecordBeginsAnew) {
  Peer peer;
  const auto pass = [&](int windows, uint32_t gaps, uint32_t packets) {
    WireGaps::Count count;
    for (int i = 0; i < windows; ++i) count = peer.Window(1, 1000, gaps, packets += 990);
    return count;
  };
  peer.sent = 50'000'000;
  EXPECT_TRUE(pass(10, 10, 50'000'000).known);
  EXPECT_FALSE(pass(1, 0, 500).known) << "its agent began anew";
  EXPECT_FALSE(pass(5, 0, 1490).known);
  EXPECT_TRUE(pass(1, 1, 6440).known);
}

TEST(WireGaps, AnAnswerIsKnownForTwoWindows) {
  Peer peer;
  for (uint32_t window = 1; window <= WireGaps::kKnownAfter; ++window) peer.Window(1, 1000, window, 1000 * window);
  EXPECT_TRUE(peer.Window(0, 0, 9, 9).known);
  EXPECT_FALSE(peer.Window(0, 0, 9, 9).known);
  peer.gaps.Answered(kBetween, {true, {{.qpn = 8, .known = true, .gaps = 3}}});
  EXPECT_FALSE(peer.gaps.Look(kPairIndex, FlowTo(8), 0, 0).known) << "nobody asked";
}

// Its last answers are of a time when nothing was lost: they would call a new loss reordering.
TEST(WireGaps, ALossAfterAWhileIsAskedAboutAnew) {
  Peer peer;
  uint32_t packets = 0;
  for (uint32_t window = 0; window < WireGaps::kKnownAfter + 1; ++window) peer.Window(1, 1000, 0, packets += 1000);
  for (int window = 0; window < 5; ++window) peer.Window(0, 1000, 0, packets += 1000);
  WireGaps::Count count;
  for (uint32_t window = 1; window <= 8; ++window) {
    count = peer.Window(10, 1000, 10 * window, packets += 990);
    EXPECT_FALSE(count.known && count.missing == 0) << window;
    EXPECT_TRUE(count.known || count.pending) << window;
  }
  EXPECT_TRUE(count.known);
  EXPECT_GE(count.missing, 40u);
}

TEST(WireGaps, ALossThatGoesOnForLongStaysOne) {
  Peer peer;
  uint32_t packets = 0;
  WireGaps::Count count;
  for (uint32_t window = 1; window <= 1500; ++window) count = peer.Window(10, 1000, 10 * window, packets += 990);
  EXPECT_GE(count.missing, 14'900u);
}

TEST(WireGaps, NobodyWaitsForAPeerThatCannotTell) {
  WireGaps gaps;
  const auto window = [&](uint64_t naks, bool answered) {
    gaps.Look(kPairIndex, FlowTo(7), naks, 1000);
    (void)gaps.Questions();
    if (answered) gaps.Answered(kBetween, {true, {{.qpn = 7, .known = false}}});
    return gaps.Look(kPairIndex, FlowTo(7), naks, 1000).pending;
  };
  EXPECT_FALSE(window(0, false));
  EXPECT_TRUE(window(1, false));
  EXPECT_FALSE(window(2, true)) << "it does not see the flow";
  gaps = WireGaps();
  window(0, false);
  int waited = 0;
  for (uint64_t naks = 1; naks < 20; ++naks) waited += window(naks, false);
  EXPECT_EQ(waited, 3) << "no answer";
}

TEST(WireGaps, MoreThanAMessageHoldsWaits) {
  WireGaps gaps;
  size_t asked = 0;
  for (int window = 0; window < 4; ++window) {
    if (window < 2) {
      for (uint32_t qpn = 1; qpn <= 2 * probe::kMaxGapsPerMessage; ++qpn) gaps.Look(kPairIndex, FlowTo(qpn), 0, 0);
    }
    for (const auto& [pair, question] : gaps.Questions()) {
      EXPECT_LE(question.flows.size(), probe::kMaxGapsPerMessage);
      asked += question.flows.size();
    }
  }
  EXPECT_EQ(2 * probe::kMaxGapsPerMessage, asked);
  EXPECT_TRUE(gaps.Questions().empty()) << "flows that were not looked at are forgotten";
}

}  // namespace
}  // namespace cw::agent
