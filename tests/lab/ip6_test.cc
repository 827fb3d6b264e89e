// SPDX-License-Identifier: Apache-2.0
// The product on a fabric of IPv6: the switches hash addresses, ports and flow labels, and the agents know nothing but
// fd00:: addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

TestbedSpec Spec() {
  TestbedSpec spec;
  spec.fabric = {.lab = "ip6test", .link_mbps = 400, .ipv6 = true, .ecmp_seed = 1};
  spec.mode = "protect";
  spec.agent_binary = CWLAB_AGENTD_BINARY;
  return spec;
}

TEST(Ip6Fabric, PathsHopsAndDelaysAreKnown) {
  auto testbed = Testbed::Up(Spec());
  ASSERT_TRUE(testbed.ok()) << testbed.status();
  EXPECT_EQ((*testbed)->fabric().HostAddr(0), "fd00::a00:a");
  const auto paths = (*testbed)->agent(0).Paths({});
  ASSERT_TRUE(paths.ok()) << paths.status();
  ASSERT_EQ(paths->pairs_size(), 1);
  EXPECT_EQ(paths->pairs(0).remote_address(), "fd00::a00:10a");
  std::set<std::string> spines;
  for (const v1::Path& path : paths->pairs(0).paths()) {
    if (!path.assignable()) continue;
    ASSERT_EQ(path.hops_size(), 3);
    EXPECT_EQ(path.hops(0), "fd00::a01:ff00");
    EXPECT_EQ(path.hops(2), "fd00::a01:ff01");
    spines.insert(path.hops(1));
  }
  EXPECT_EQ(spines, (std::set<std::string>{"fd00::a01:0", "fd00::a01:100", "fd00::a01:200", "fd00::a01:300"}));

  auto emulator = (*testbed)->NewEmulator(1);
  ASSERT_TRUE(emulator.ok()) << emulator.status();
  ASSERT_TRUE((*emulator)->AddJob(SteadyTraffic(absl::Microseconds(500))).ok());
  ASSERT_TRUE((*emulator)->Start().ok());
  // One-way delays need samples from the other agent, and its clock: messages, both.
  EXPECT_TRUE(Eventually([&] {
    const auto qps = (*testbed)->agent(0).Qps({});
    return qps.ok() && qps->flows_size() == 4 &&
           std::all_of(qps->flows().begin(), qps->flows().end(), [](const v1::Flow& flow) {
             return flow.local_qpn() != 0 && flow.owd().samples() > 0 && flow.remote_address() == "fd00::a00:10a";
           });
  }));
  EXPECT_EQ((*testbed)->CounterSum("ip6_extension"), 0u);
  // Probes and their answers ride in the traffic class of the flows.
  EXPECT_TRUE(Eventually([&] {
    const int64_t since_ns = MonotonicNs();
    absl::SleepFor(absl::Milliseconds(300));
    std::set<int> classes;
    const auto flows = (*testbed)->fabric().Flows();
    if (!flows.ok()) return false;
    for (const FlowCounters& flow : *flows) {
      if (flow.probe && flow.last_ns > since_ns) classes.insert(flow.last_dscp);
    }
    return classes == std::set<int>{26};
  }));
}

TEST(Ip6Fabric, LeavesASilentlyDeadSpine) {
  FailoverSpec spec;
  spec.testbed = Spec();
  spec.cuts = 3;
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->AllRecoveries().empty());
  EXPECT_EQ(result->NotRecovered(), 0);
  EXPECT_EQ(result->flows_lost, 0);
  EXPECT_EQ(result->icrc_errors, 0u);
  EXPECT_LT(Quantile(result->AllRecoveries(), 1), 60) << "ten times what is expected";
}

TEST(Ip6Fabric, CollidingQueuePairsAreSpread) {
  ContentionSpec spec;
  spec.testbed.fabric = {.lab = "ip6test", .hosts_per_leaf = 2, .link_mbps = 200, .ipv6 = true, .ecmp_seed = 1};
  spec.testbed.active_interval = absl::Milliseconds(5);
  spec.testbed.agent_binary = CWLAB_AGENTD_BINARY;
  spec.best_duration = absl::Seconds(6);
  spec.seed = 3;
  const auto result = RunContention(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->flows_lost, 0);
  EXPECT_EQ(result->icrc_errors, 0u);
  const int before = *std::max_element(result->initial_flows_per_spine.begin(), result->initial_flows_per_spine.end());
  EXPECT_LE(*std::max_element(result->final_flows_per_spine.begin(), result->final_flows_per_spine.end()), before);
  if (before > 2) {
    EXPECT_GT(result->moves, 0u);
  }
  std::printf("%s; %d on one spine before; slowest %.1f of %.1f Mbit/s\n", result->phase.name.c_str(), before,
              result->goodput_min_mbps, BestGoodputMbps(spec));
}

}  // namespace
}  // namespace cw::lab
