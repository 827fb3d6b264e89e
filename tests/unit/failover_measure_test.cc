// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_measure.h"
#include "tests/unit/time_units.h"

#include <gtest/gtest.h>

#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/failover_fault.h"
#include "userspace/lab/stall_witness.h"

namespace cw::lab {
namespace {

FlowReport WithStalls(const std::vector<Gap>& stalls) {
  FlowReport flow;
  flow.send.stalls = stalls;
  return flow;
}

TEST(LongestStall, OnlyThoseThatBeganWithTheCutCount) {
  const CutTime time{1000 * kMs, 1400 * kMs};
  const FlowReport flow =
      WithStalls({{900 * kMs, 990 * kMs}, {998 * kMs, 1010 * kMs}, {1100 * kMs, 1103 * kMs}, {1400 * kMs, 1900 * kMs}});
  const Stall stall = LongestStall(flow, 2000 * kMs, time);
  EXPECT_DOUBLE_EQ(stall.ms, 12);
  EXPECT_EQ(stall.end_ns, 1010 * kMs);
  EXPECT_FALSE(stall.dead);
}

TEST(LongestStall, OneThatGoesOnCountsUntilNow) {
  FlowReport flow = WithStalls({{1000 * kMs, 1005 * kMs}});
  flow.waiting_since_ns = 1200 * kMs;
  const Stall stall = LongestStall(flow, 1500 * kMs, {1000 * kMs, 1400 * kMs});
  EXPECT_DOUBLE_EQ(stall.ms, 300);
  EXPECT_EQ(stall.end_ns, INT64_MAX);
  flow.waiting_since_ns = 1450 * kMs;  // after the repair: another story
  EXPECT_DOUBLE_EQ(LongestStall(flow, 1500 * kMs, {1000 * kMs, 1400 * kMs}).ms, 5);
}

TEST(LongestStall, AFlowThatDiedStoodStillUntilThen) {
  FlowReport flow;
  flow.dead = true;
  flow.send.dead_ns = 1536 * kMs;
  const Stall stall = LongestStall(flow, 2000 * kMs, {1000 * kMs, 1400 * kMs});
  EXPECT_TRUE(stall.dead);
  EXPECT_DOUBLE_EQ(stall.ms, 536);
  EXPECT_NE(stall.end_ns, INT64_MAX) << "nobody waits for it";
}

TEST(LeftMs, TheFlowsOwnLastPacketOnThatLink) {
  const LinkDirection link = LinkDirection::SpineToLeaf(2, 1), other = LinkDirection::SpineToLeaf(1, 1);
  std::vector<FlowCounters> counted(4);
  counted[0] = {.link = link, .source = "a", .dest_qpn = 7, .last_ns = 1030 * kMs};
  counted[1] = {.link = other, .source = "a", .dest_qpn = 7, .last_ns = 1990 * kMs};
  counted[2] = {.link = link, .source = "a", .dest_qpn = 8, .last_ns = 1990 * kMs};
  counted[3] = {.link = link, .source = "a", .dest_qpn = 7, .probe = true, .last_ns = 1990 * kMs};
  EXPECT_DOUBLE_EQ(LeftMs(counted, "a", 7, link, 1000 * kMs, 2000 * kMs), 30);
  EXPECT_EQ(LeftMs(counted, "a", 8, link, 1000 * kMs, 2000 * kMs), -1) << "still there";
  EXPECT_DOUBLE_EQ(LeftMs(counted, "b", 7, link, 1000 * kMs, 2000 * kMs), 0) << "was never there";
}

TEST(BrokenLinks, ARebootIsOfAllLinksAndADirectionOfOne) {
  EXPECT_EQ(BrokenLinks(CutKind::kReboot, 3, 2).size(), 2u);
  EXPECT_EQ(BrokenLinks(CutKind::kForward, 3, 2), (std::vector{LinkDirection::SpineToLeaf(3, 1)}));
  EXPECT_EQ(BrokenLinks(CutKind::kReverse, 3, 2), (std::vector{LinkDirection::SpineToLeaf(3, 0)}));
}

TEST(StallWitness, TheLongestStallThatOverlaps) {
  const std::vector<MachineStall> stalls = {{10 * kMs, 13 * kMs}, {20 * kMs, 21 * kMs}, {40 * kMs, 90 * kMs}};
  EXPECT_EQ(0, LongestStallMs(stalls, 0, 10 * kMs)) << "ends where the stall begins";
  EXPECT_EQ(3, LongestStallMs(stalls, 12 * kMs, 30 * kMs));
  EXPECT_EQ(1, LongestStallMs(stalls, 13 * kMs, 30 * kMs));
  EXPECT_EQ(50, LongestStallMs(stalls, 60 * kMs, 61 * kMs));
}

TEST(StallWitness, OnlyUndisturbedCutsCount) {
  FailoverResult result;
  result.cuts.push_back({.recovery_ms = {2, 3}, .stall_ms = 4, .machine_stall_ms = 0.9});
  result.cuts.push_back({.recovery_ms = {20}, .stall_ms = 40, .machine_stall_ms = 15});
  EXPECT_EQ(1, result.Disturbed());
  EXPECT_EQ((std::vector<double>{2, 3, 20}), result.AllRecoveries());
  EXPECT_EQ((std::vector<double>{2, 3}), result.AllRecoveries(/*undisturbed=*/true));
  EXPECT_EQ((std::vector<double>{4}), result.CutStalls(/*undisturbed=*/true));
}

}  // namespace
}  // namespace cw::lab
