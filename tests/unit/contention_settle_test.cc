// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "userspace/lab/experiment_contention.h"

namespace cw::lab {
namespace {

TEST(SettleSeconds, IsFromWhenOnTheSlowestFlowIsGoodForGood) {
  const std::vector<double> fast = {9, 9, 9, 9, 9, 9, 9, 9};
  EXPECT_DOUBLE_EQ(SettleSeconds({fast, fast}, 0.5, 2, 8), 0);
  EXPECT_DOUBLE_EQ(SettleSeconds({fast, {1, 1, 1, 9, 9, 9, 9, 9}}, 0.5, 2, 8), 1.5);
  EXPECT_DOUBLE_EQ(SettleSeconds({fast, {1, 9, 9, 9, 5, 9, 9, 9}}, 0.5, 2, 8), 2.5) << "it fell once more";
  EXPECT_DOUBLE_EQ(SettleSeconds({{9, 9, 9, 7, 9, 9, 9, 9}}, 0.5, 2, 8), 0) << "a window is a mean";
  EXPECT_EQ(SettleSeconds({fast, {9, 9, 9, 9, 9, 9, 9, 1}}, 0.5, 2, 8), -1) << "never";
  EXPECT_EQ(SettleSeconds({{9}}, 0.5, 2, 8), -1) << "too short to tell";
  EXPECT_EQ(SettleSeconds({}, 0.5, 2, 8), -1);
}

TEST(MovesByKind, ANakBelongsToTheNewestMoveOfItsFlow) {
  constexpr int64_t kMs = 1'000'000;
  const auto kinds = CountByKind({{.at_ns = 1400 * kMs, .flow = "a", .reason = "forced"},
                                  {.at_ns = 1000 * kMs, .flow = "a", .reason = "idle"},
                                  {.at_ns = 1080 * kMs, .flow = "a", .reason = "held"},
                                  {.at_ns = 1000 * kMs, .flow = "b", .reason = "idle"}},
                                 {{"a",
                                   {960 * kMs,                             // before all of them
                                    975 * kMs, 1040 * kMs,                 // of the first, which is told late
                                    1060 * kMs,                            // of the second
                                    1200 * kMs,                            // of none
                                    1390 * kMs, 1401 * kMs, 1450 * kMs}},  // of the third
                                  {"c", {1001 * kMs}}});
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds.at("idle").moves, 2u);
  EXPECT_EQ(kinds.at("idle").naks, 2u);
  EXPECT_EQ(kinds.at("held").moves, 1u);
  EXPECT_EQ(kinds.at("held").naks, 1u);
  EXPECT_EQ(kinds.at("forced").naks, 3u);
}

TEST(BestGoodput, OfWholeFlowsOnLinksOfTheirRates) {
  ContentionSpec spec;
  spec.testbed.fabric = {.hosts_per_leaf = 4, .link_mbps = 200};
  const double wire = 4096.0 / 4154;
  EXPECT_DOUBLE_EQ(BestGoodputMbps(spec), 100 * wire);
  spec.workload = Workload::kTwoAllToAll;  // four flows of each job from leaf to leaf
  EXPECT_DOUBLE_EQ(BestGoodputMbps(spec), 100 * wire);
  spec.workload = Workload::kAsymmetric;  // 200, 200, 200, 100: three flows on one, or two on the slow one
  EXPECT_NEAR(BestGoodputMbps(spec), 200.0 / 3 * wire, 1e-9);
  spec.workload = Workload::kAllToAll;  // sixteen flows each way
  EXPECT_DOUBLE_EQ(BestGoodputMbps(spec), 50 * wire);
  spec.workload = Workload::kRing;
  EXPECT_DOUBLE_EQ(BestGoodputMbps(spec), 100 * wire);
  spec.testbed.fabric.spines = 8;
  EXPECT_DOUBLE_EQ(BestGoodputMbps(spec), 200 * wire);
}

}  // namespace
}  // namespace cw::lab
