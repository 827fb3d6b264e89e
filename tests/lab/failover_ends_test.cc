// SPDX-License-Identifier: Apache-2.0
// A system that sees no fault loses its queue pairs cut by cut. The run ends with what was measured until then.
#include <gtest/gtest.h>

#include "userspace/lab/experiment_failover.h"

namespace cw::lab {
namespace {

TEST(FailoverEnds, WhenNoQueuePairIsLeft) {
  FailoverSpec spec;
  spec.testbed.fabric = {.lab = "failends", .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agents = false;
  spec.timeout = 10;  // 4 ms, seven times: each cut ends all that is on the spine
  spec.cuts = 50;
  spec.settle = absl::Milliseconds(100);
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->flows_lost, spec.flows);
  EXPECT_GE(result->cuts.size(), 1u);
  EXPECT_LE(result->cuts.size(), 4u) << "there are four spines";
  EXPECT_EQ(result->NotRecovered(), spec.flows);
  EXPECT_EQ(result->ended_early, NothingLeft(static_cast<int>(result->cuts.size()), spec.flows, spec.flows));
}

}  // namespace
}  // namespace cw::lab
