// SPDX-License-Identifier: Apache-2.0
// Data dies on a spine while probes pass it: only the flows' own acknowledgements tell.
#include <gtest/gtest.h>

#include "userspace/lab/experiment_failover.h"

namespace cw::lab {
namespace {

TEST(DataDeath, FlowsLeaveThePathThoughItsProbesPass) {
  FailoverSpec spec;
  spec.testbed.fabric = {.lab = "datadeath", .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.agent_binary = CWLAB_AGENTD_BINARY;
  spec.kind = CutKind::kDataOnly;
  spec.cuts = 3;
  spec.hold = absl::Milliseconds(1600);  // ten times what it takes
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->AllRecoveries().empty());
  EXPECT_EQ(result->NotRecovered(), 0);
  EXPECT_EQ(result->StillOnPath(), 0);
  EXPECT_EQ(result->flows_lost, 0);
  EXPECT_EQ(result->icrc_errors, 0u);
}

}  // namespace
}  // namespace cw::lab
