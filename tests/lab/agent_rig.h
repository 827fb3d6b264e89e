// SPDX-License-Identifier: Apache-2.0
//
// Two hosts behind two leaves and four spines, with real agents in protect mode, and steady traffic between them: what
// the tests of agent_test share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

namespace v1 = api::v1;

inline TestbedSpec SmallSpec() {
  TestbedSpec spec;
  spec.fabric = {.lab = "agenttest", .link_mbps = 400, .ecmp_seed = 1};
  spec.mode = "protect";
  spec.agent_binary = CWLAB_AGENTD_BINARY;
  return spec;
}

class AgentOnFabric : public ::testing::Test {
 protected:
  void Up(const TestbedSpec& spec) {
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
  }
  void StartTraffic(int qps, uint32_t stamp_every = 0) {
    StartJob(SteadyTraffic(absl::Microseconds(500), qps), stamp_every);
  }
  void StartJob(const JobSpec& job, uint32_t stamp_every = 0) {
    auto made = testbed->NewEmulator(1, stamp_every);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }
  // Eight queue pairs of each of which the agent has seen a thousand packets, half a second of them.
  void StartKnownTraffic() {
    ASSERT_NO_FATAL_FAILURE(StartTraffic(8));
    ASSERT_TRUE(Eventually([&] {
      const std::vector<v1::Flow> flows = FlowsOf(0);
      return flows.size() == 8 &&
             std::all_of(flows.begin(), flows.end(), [](const v1::Flow& flow) { return flow.packets() > 1000; });
    }));
  }
  v1::PathsReply PathsOf(int host) {
    auto reply = testbed->agent(host).Paths({});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::PathsReply();
  }
  v1::QpsReply QpsOf(int host) {
    auto reply = testbed->agent(host).Qps({});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::QpsReply();
  }
  // A slot is known for each of so many flows of host 0.
  bool PathsKnown(size_t count) {
    const std::vector<v1::Flow> flows = FlowsOf(0);
    return flows.size() == count &&
           std::all_of(flows.begin(), flows.end(), [](const v1::Flow& flow) { return flow.slot() >= 0; });
  }
  std::vector<v1::Flow> FlowsOf(int host) {
    const v1::QpsReply reply = QpsOf(host);
    return {reply.flows().begin(), reply.flows().end()};
  }
  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

}  // namespace cw::lab
