// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/wire_gaps.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

const PairKey kBetween{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
constexpr uint32_t kPairIndex = 3;

FlowKey FlowTo(uint32_t qpn) { return {.src = kBetween.local, .dst = kBetween.remote, .dqpn = qpn}; }

TEST(WireGaps, AsksOnceForWhatWasRefused) {
  WireGaps gaps;
  EXPECT_FALSE(gaps.Look(kPairIndex, FlowTo(7), 5).known);
  EXPECT_TRUE(gaps.Questions().empty()) << "what was refused before the first look is nobody's question";
  gaps.Look(kPairIndex, FlowTo(7), 8);
  gaps.Look(kPairIndex, FlowTo(9), 0);
  const auto questions = gaps.Questions();
  ASSERT_EQ(1u, questions.size());
  EXPECT_EQ(kPairIndex, questions[0].first);
  ASSERT_EQ(1u, questions[0].second.flows.size());
  EXPECT_EQ(7u, questions[0].second.flows[0].qpn);
  gaps.Look(kPairIndex, FlowTo(7), 8);
  EXPECT_TRUE(gaps.Questions().empty());
}

TEST(WireGaps, AnAnswerIsKnownForTwoWindows) {
  WireGaps gaps;
  gaps.Look(kPairIndex, FlowTo(7), 0);
  gaps.Look(kPairIndex, FlowTo(7), 1);
  gaps.Questions();
  gaps.Answered(kBetween, {true, {{.qpn = 7, .known = true, .gaps = 2}, {.qpn = 8, .known = true, .gaps = 3}}});
  EXPECT_FALSE(gaps.Look(kPairIndex, FlowTo(8), 0).known) << "nobody asked";
  for (int window = 0; window < 2; ++window) {
    const WireGaps::Count count = gaps.Look(kPairIndex, FlowTo(7), 1);
    EXPECT_TRUE(count.known) << window;
    EXPECT_EQ(2u, count.gaps);
    gaps.Questions();
  }
  EXPECT_FALSE(gaps.Look(kPairIndex, FlowTo(7), 1).known);
  gaps.Answered(kBetween, {true, {{.qpn = 7, .known = false, .gaps = 9}}});
  EXPECT_EQ(2u, gaps.Look(kPairIndex, FlowTo(7), 1).gaps) << "a peer that does not see the flow";
}

TEST(WireGaps, MoreThanAMessageHoldsWaits) {
  WireGaps gaps;
  size_t asked = 0;
  for (int window = 0; window < 3; ++window) {
    for (uint32_t qpn = 1; qpn <= 2 * probe::kMaxGapsPerMessage; ++qpn) gaps.Look(kPairIndex, FlowTo(qpn), window > 0);
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
