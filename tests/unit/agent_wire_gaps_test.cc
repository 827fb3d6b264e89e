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
  gaps.Look(kPairIndex, FlowTo(7), 8, 300);
  EXPECT_TRUE(gaps.Questions().empty());
}

TEST(WireGaps, WhatNeverCameIsMissing) {
  Peer peer;
  EXPECT_FALSE(peer.Window(0, 1000, 5, 990).known) << "nothing to compare with";
  const WireGaps::Count first = peer.Window(3, 1000, 8, 1987);
  EXPECT_TRUE(first.known);
  EXPECT_EQ(3u, first.gaps);
  EXPECT_EQ(3u, first.missing);
  EXPECT_EQ(7u, peer.Window(4, 1000, 12, 2983).missing);
}

TEST(WireGaps, WhatIsOvertakenIsNotMissing) {
  Peer peer;
  peer.Window(0, 1000, 0, 980);
  for (int window = 1; window < 20; ++window) {
    const uint32_t under_way = window % 2 == 0 ? 20 : 25;
    const WireGaps::Count count = peer.Window(10, 1000, 10u * window, 1000u * (window + 1) - under_way);
    EXPECT_EQ(10u * window, count.gaps);
    EXPECT_LE(count.missing, 5u) << "packets under way do not add up";
  }
}

TEST(WireGaps, CountsPassThirtyTwoBits) {
  Peer peer;
  peer.sent = 0xffffff00;
  peer.Window(0, 0, 0xfffffffe, 0xffffff00);
  const WireGaps::Count count = peer.Window(1, 0x200, 2, 0xf0);
  EXPECT_EQ(4u, count.gaps);
  EXPECT_EQ(0x10u, count.missing);
}

TEST(WireGaps, APeersNewRecordBeginsAnew) {
  Peer peer;
  peer.Window(0, 50'000'000, 9, 50'000'000);
  EXPECT_TRUE(peer.Window(1, 1000, 10, 50'000'990).known);
  EXPECT_FALSE(peer.Window(1, 1000, 0, 500).known) << "its agent began anew";
  const WireGaps::Count count = peer.Window(1, 1000, 1, 1499);
  EXPECT_TRUE(count.known);
  EXPECT_EQ(1u, count.gaps);
  EXPECT_EQ(1u, count.missing);
}

TEST(WireGaps, AnAnswerIsKnownForTwoWindows) {
  Peer peer;
  peer.Window(0, 1000, 2, 1000);
  ASSERT_TRUE(peer.Window(1, 1000, 3, 2000).known);
  EXPECT_TRUE(peer.Window(0, 0, 9, 9).known);
  EXPECT_FALSE(peer.Window(0, 0, 9, 9).known);
  peer.gaps.Answered(kBetween, {true, {{.qpn = 7, .known = false, .gaps = 9}}});
  EXPECT_EQ(1u, peer.Window(0, 0, 9, 9).gaps) << "a peer that does not see the flow";
  peer.gaps.Answered(kBetween, {true, {{.qpn = 8, .known = true, .gaps = 3}}});
  EXPECT_FALSE(peer.gaps.Look(kPairIndex, FlowTo(8), 0, 0).known) << "nobody asked";
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
