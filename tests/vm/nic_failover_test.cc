// SPDX-License-Identifier: Apache-2.0
// NIC failover on real soft-RoCE: machines with two NICs on the fabric, queue pairs on the first, which is cut while
// perftest runs. No queue pair may fail.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/lab/eventually.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

class NicFailoverTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmnic";
    options.spines = 2;
    options.second_nic = true;
    options.log_dir = CW_VM_LOG_DIR "/nic_failover";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    config::Config config = AgentConfig();
    config.nics = {{.name = "eth0"}, {.name = "eth2"}};
    for (int i = 0; i < 2; i++) config.peers[static_cast<size_t>(i)].addresses.push_back(Rack::SecondAddress(i));
    config.steering.nic_failover = true;
    Begin(options, config);
  }
  void SetUp() override {
    AgentsFixture::SetUp();
    if (!setup_.ok()) return;
    // Each of the four pairs of NICs answers.
    ASSERT_TRUE(Eventually([&] { return PairsAlive(0) == 4 && PairsAlive(1) == 4; })) << Logs();
  }
  static bool Eventually(const std::function<bool()>& done) {
    return AgentsFixture::Eventually(done, absl::Seconds(40));
  }
  int PairsAlive(int i) {
    auto reply = agents_->Ctl(i, "paths");
    if (!reply.ok()) return -1;
    int alive = 0;
    for (const auto& pair : reply->at("pairs")) {
      const auto& paths = pair.at("paths");
      alive += std::any_of(paths.begin(), paths.end(), [](const auto& path) { return path.at("state") == "up"; });
    }
    return alive;
  }
  int PairsCarried(int i) {
    auto reply = agents_->Ctl(i, "status");
    return reply.ok() ? reply->at("nics").at(0).at("pairs_carried").get<int>() : -1;
  }
  // MB/s of what crossed a host port of machine 0 towards the fabric.
  double Throughput(int port, absl::Duration span) {
    const auto bytes = [&] {
      return rack_->fabric().Link(lab::LinkDirection::HostToLeaf(port)).value_or(lab::LinkCounters()).carried_bytes;
    };
    const uint64_t before = bytes();
    const absl::Time start = absl::Now();
    lab::Hold(span);
    return static_cast<double>(bytes() - before) / 1e6 / absl::ToDoubleSeconds(absl::Now() - start);
  }
  void Cut(bool cut) {
    const int port = rack_->port(0);
    for (const auto& link : {lab::LinkDirection::HostToLeaf(port), lab::LinkDirection::LeafToHost(port)}) {
      ASSERT_TRUE(rack_->fabric().SetFault(link, cut ? lab::Fault::Drop() : lab::Fault::None()).ok());
    }
  }
};

TEST_F(NicFailoverTest, QueuePairsGoOnByTheOtherNicAndReturn) {
  auto before = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(before.ok()) << before.status();
  // Longer than the cut and the return take. One message in flight each: queues that the emulated
  // processors never work off would lose the probes, too, and make NICs look silent in turn.
  auto run = Perftest::Start(*rack_, {.arguments = "-q 2 -t 1 -D 400 -s 16384 -u 18"});
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  ASSERT_TRUE(WaitForQueuePairs(rack_->machine(0), 2, absl::Seconds(30)).ok());
  ASSERT_TRUE(Eventually([&] { return Throughput(rack_->port(0), absl::Milliseconds(300)) > 1; }));
  const double normal = Throughput(rack_->port(0), absl::Seconds(3));

  Cut(true);
  ASSERT_TRUE(Eventually([&] { return PairsCarried(0) > 0 && PairsCarried(1) > 0; })) << Logs();
  ASSERT_TRUE(Eventually([&] { return Throughput(rack_->second_port(0), absl::Milliseconds(300)) > 1; })) << Logs();
  const double carried = Throughput(rack_->second_port(0), absl::Seconds(3));
  EXPECT_TRUE(run_->running());

  Cut(false);
  ASSERT_TRUE(Eventually([&] { return PairsCarried(0) == 0 && PairsCarried(1) == 0; })) << Logs();
  ASSERT_TRUE(Eventually([&] { return Throughput(rack_->port(0), absl::Milliseconds(300)) > 1; })) << Logs();
  const double after = Throughput(rack_->port(0), absl::Seconds(2));
  EXPECT_TRUE(run_->running()) << "perftest ended before the queue pairs had returned";
  std::printf("MB/s: before %.1f, by the other NIC %.1f, after %.1f\n", normal, carried, after);
  EXPECT_GT(carried, normal / 10);
  EXPECT_GT(after, normal / 10);

  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status() << Logs();
  EXPECT_GT(result->messages, 0u);
  auto counters = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(counters.ok()) << counters.status();
  for (const char* broken : {"retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"}) {
    EXPECT_EQ(counters->at(broken), before->at(broken)) << broken;
  }
}

}  // namespace
}  // namespace cw::vm
