// SPDX-License-Identifier: Apache-2.0
// What Prometheus reads of agents on the lab's fabric, against what was done to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/steady_traffic.h"
#include "tests/unit/http_client.h"
#include "tests/unit/metrics_filled.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/emulator.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

class MetricsOnFabric : public ::testing::Test {
 protected:
  void Up(int extra_peers = 0, const std::vector<int>& second_nics = {}) {
    TestbedSpec spec;
    spec.fabric = {.lab = "metricstest", .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "observe";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.extra_peers = extra_peers;
    spec.second_nics = second_nics;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
  }
  metrics::Reading Read(int host) {
    const std::string socket = DescribeAgentHost(testbed->fabric(), host).run_dir + "/metrics.sock";
    const std::string answer = http::Ask(socket, "GET /metrics");
    EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 200")) << socket;
    return metrics::Reading(http::Body(answer));
  }
  // Processor time of all threads of an agent.
  double CpuMs(int host) const {
    double sum_ns = 0;
    const std::string tasks = absl::StrCat("/proc/", testbed->agent_pid(host), "/task");
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      double ns = 0;
      if (std::ifstream(task.path() / "schedstat") >> ns) sum_ns += ns;
    }
    return sum_ns / 1e6;
  }
  std::unique_ptr<Testbed> testbed;
};

TEST_F(MetricsOnFabric, ASilentlyCutSpineIsADeadPathAndAVerdict) {
  Up();
  ASSERT_NE(testbed, nullptr);
  const metrics::Reading before = Read(0);
  EXPECT_EQ(before.Value("cwfabric_paths", {{"nic", "eth0"}, {"state", "up"}}), 4);
  EXPECT_EQ(before.Value("cwfabric_paths", {{"nic", "eth0"}, {"state", "dead"}}), 0);
  EXPECT_EQ(before.Value("cwfabric_peers", {{"state", "reachable"}}), 1);
  EXPECT_EQ(before.Value("cwfabric_link_up", {{"nic", "eth0"}}), 1);
  const auto port = [&] {
    auto paths = testbed->agent(0).Paths({});
    EXPECT_TRUE(paths.ok()) << paths.status();
    return static_cast<uint16_t>(paths->pairs(0).paths(0).udp_port());
  };
  const auto spine = testbed->fabric().PathOf(0, 1, port());
  ASSERT_TRUE(spine.ok()) << spine.status();
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(*spine, 1), Fault::Drop()).ok());
  // Idle paths are probed ten times a second here.
  EXPECT_TRUE(Eventually([&] {
    const metrics::Reading now = Read(0);
    return now.Value("cwfabric_paths", {{"state", "dead"}}) == 1 &&
           now.Value("cwfabric_events_total", {{"type", "path"}, {"severity", "alert"}}) >= 1;
  }));
  const metrics::Reading after = Read(0);
  EXPECT_EQ(after.Value("cwfabric_paths", {{"state", "up"}}), 3);
  EXPECT_GT(after.Value("cwfabric_slots_died_total"), before.Value("cwfabric_slots_died_total"));
  EXPECT_GT(after.Value("cwfabric_probe_replies_total"), before.Value("cwfabric_probe_replies_total"));
  // Delays are known once the clocks are.
  EXPECT_TRUE(Eventually([&] {
    return Read(0).Value("cwfabric_path_owd_seconds_count",
                         {{"nic", "eth0"}, {"rail", "own"}, {"direction", "forward"}}) > 0;
  }));
}

TEST_F(MetricsOnFabric, FlapsAreCountedThoughNobodyLooksBetweenThem) {
  Up();
  ASSERT_NE(testbed, nullptr);
  EXPECT_EQ(Read(0).Value("cwfabric_link_flaps_1h", {{"nic", "eth0"}}), 0);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, false).ok());
    ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, true).ok());
  }
  EXPECT_TRUE(Eventually([&] { return Read(0).Value("cwfabric_link_flaps_1h", {{"nic", "eth0"}}) == 9; }));
  ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, false).ok());
  EXPECT_TRUE(Eventually([&] { return Read(0).Value("cwfabric_link_up", {{"nic", "eth0"}}) == 0; }));
  EXPECT_EQ(Read(0).Value("cwfabric_link_flaps_1h", {{"nic", "eth0"}}), 9) << "down is no flap yet";
  EXPECT_GE(Read(0).Value("cwfabric_link_down_total", {{"nic", "eth0"}}), 10);
}

TEST_F(MetricsOnFabric, PacketsOfQueuePairsAreCountedPerNic) {
  Up();
  ASSERT_NE(testbed, nullptr);
  auto emulator = testbed->NewEmulator(1);
  ASSERT_TRUE(emulator.ok()) << emulator.status();
  ASSERT_TRUE((*emulator)->AddJob(SteadyTraffic()).ok());
  ASSERT_TRUE((*emulator)->Start().ok());
  const auto bytes = [&](int host, const char* what) {
    return Read(host).Value(absl::StrCat("cwfabric_roce_", what, "_bytes_total"), {{"nic", "eth0"}});
  };
  EXPECT_TRUE(Eventually([&] { return bytes(0, "sent") > 1e5 && bytes(1, "received") > 1e5; }));
  const double arrived = bytes(1, "received");
  EXPECT_TRUE(Eventually([&] { return bytes(1, "received") > arrived; })) << "and goes on";
  EXPECT_LT(bytes(0, "received"), bytes(0, "sent") / 2) << "acknowledgements alone";
}

TEST_F(MetricsOnFabric, PathsAndDelaysAreTheirNics) {
  Up(/*extra_peers=*/0, /*second_nics=*/{0, 1});
  ASSERT_NE(testbed, nullptr);
  EXPECT_TRUE(Eventually([&] {
    const metrics::Reading now = Read(0);
    bool all = true;
    for (const char* nic : {"eth0", "eth1"}) {
      all = all && now.Value("cwfabric_paths", {{"nic", nic}, {"state", "up"}}) > 0;
      for (const char* rail : {"own", "other"})
        all = all && now.Value("cwfabric_path_owd_seconds_count",
                               {{"nic", nic}, {"rail", rail}, {"direction", "forward"}}) > 0;
    }
    return all;
  })) << "each NIC probes the peer's NIC of its rail and the other one";
}

TEST_F(MetricsOnFabric, AReadingCostsLittle) {
  constexpr int kReadings = 20;
  Up(/*extra_peers=*/300);
  ASSERT_NE(testbed, nullptr);
  const auto spent_ms = [&](bool reading) {
    const double before_ms = CpuMs(0);
    if (reading) Read(0);
    absl::SleepFor(absl::Milliseconds(300));  // readings that are closer share a page
    return CpuMs(0) - before_ms;
  };
  // In turns, because what the agent does besides changes.
  double idle_ms = 0, read_ms = 0;
  for (int i = 0; i < kReadings; ++i) {
    idle_ms += spent_ms(false);
    read_ms += spent_ms(true);
  }
  std::cout << "301 peers: " << (read_ms - idle_ms) / kReadings << " ms of the agent's processor time per reading ("
            << kReadings << " times 0.3 s: " << idle_ms << " ms without, " << read_ms << " ms with one)\n";
  EXPECT_LT((read_ms - idle_ms) / kReadings, 100) << "ten times what is wanted";
}

}  // namespace
}  // namespace cw::lab
