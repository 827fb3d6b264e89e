// SPDX-License-Identifier: Apache-2.0
// What a host that sends nothing says about the links of the fabric, against what the switches' ports counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kMbps = 200, kObserver = 1;
constexpr absl::Duration kWindow = absl::Seconds(10);

std::string EndOf(const LinkDirection& link) {
  const int port = 2 * link.leaf + (link.toward == LinkDirection::Toward::kUp ? 0 : 1);
  return absl::StrCat("10.1.", link.spine, ".", port);
}

class LinksOnFabric : public ::testing::Test {
 protected:
  // Three leaves, so that a spine's links to the other two are told apart from the one to it.
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {
        .lab = "linkstest", .leaves = 3, .spines = 4, .hosts_per_leaf = 2, .link_mbps = kMbps, .ecmp_seed = 1};
    spec.mode = "observe";
    spec.idle_interval = absl::Milliseconds(20);
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
  }

  v1::LinksReply Links() {
    v1::LinksRequest request;
    request.set_window_s(static_cast<uint32_t>(absl::ToInt64Seconds(kWindow)));
    absl::StatusOr<v1::LinksReply> reply = testbed->agent(kObserver).Links(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::LinksReply();
  }

  // Flows from host 0 to host 2, as fast as the marks of the switches let them be. Fewer than spines: were all links of the
  // leaf to queue, the part that is common to them could as well be the wait for the link that all paths share.
  void StartFlows() {
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    JobSpec job;
    job.pairs = {{0, 2}};
    job.qps_per_pair = 3;
    job.duration = absl::Hours(1);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }

  // Bytes given to each port's queue that have not come out of it: queued now, or lost ever.
  std::vector<double> Inside() {
    std::vector<double> bytes;
    for (const LinkCounters& link : testbed->fabric().Links())
      bytes.push_back(static_cast<double>(link.offered_bytes) - static_cast<double>(link.carried_bytes));
    return bytes;
  }

  // Means over the window.
  std::vector<double> MeanInside() {
    std::vector<double> sums(testbed->fabric().LinkDirections().size());
    int readings = 0;
    for (const absl::Time end = absl::Now() + kWindow; absl::Now() < end; absl::SleepFor(absl::Milliseconds(2))) {
      const std::vector<double> inside = Inside();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += inside[i];
      ++readings;
    }
    for (double& sum : sums) sum /= readings;
    return sums;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(LinksOnFabric, AnIdleHostNamesTheLinksThatQueueAndTheOneThatDied) {
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartFlows());
  absl::SleepFor(absl::Seconds(3));
  const std::vector<double> inside = MeanInside();
  const v1::LinksReply links = Links();
  emulator.reset();
  absl::SleepFor(absl::Milliseconds(500));
  const std::vector<double> lost = Inside();
  ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();

  int queues = 0;
  double least_ns = HUGE_VAL;  // of those that queue
  const std::vector<LinkDirection> ports = testbed->fabric().LinkDirections();
  for (size_t p = 0; p < ports.size(); ++p) {
    const LinkDirection& port = ports[p];
    const double true_ns = (inside[p] - lost[p]) * 8e3 / kMbps;
    if (port.tier != LinkDirection::Tier::kSpine || true_ns < 15e3) continue;
    ++queues;
    const auto named = std::find_if(links.links().begin(), links.links().end(),
                                    [&port](const v1::Link& link) { return link.to() == EndOf(port); });
    ASSERT_NE(links.links().end(), named) << port.Name();
    std::printf("%s: %.0f us behind the port, %.0f us +- %.0f us by host %d's probes\n", port.Name().c_str(),
                true_ns / 1e3, named->queue_ns() / 1e3, named->queue_error_ns() / 1e3, kObserver);
    EXPECT_NEAR(true_ns, named->queue_ns(), 0.5 * true_ns + 15e3) << links.ShortDebugString();
    least_ns = std::min(least_ns, named->queue_ns());
  }
  ASSERT_GT(queues, 0) << "the flows make no queue: this test shows nothing";
  for (int i = queues; i < links.links_size(); ++i)
    EXPECT_LE(links.links(i).queue_ns(), 0.5 * least_ns + 15e3) << links.links(i).ShortDebugString();

  const LinkDirection cut = LinkDirection::LeafToSpine(0, 1);
  ASSERT_TRUE(testbed->fabric().SetFault(cut, Fault::Drop()).ok());
  v1::LinksReply dead;
  for (const absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;
       absl::SleepFor(absl::Milliseconds(100))) {
    dead = Links();
    if (dead.links_size() > 0 && dead.links(0).suspect() && dead.links(0).paths() == dead.links(0).paths_dead()) break;
  }
  ASSERT_GT(dead.links_size(), 0);
  EXPECT_TRUE(dead.links(0).suspect()) << dead.ShortDebugString();
  EXPECT_EQ(EndOf(cut), dead.links(0).to()) << "the one link that all dead paths take";
  EXPECT_FALSE(dead.links(1).suspect()) << dead.links(1).ShortDebugString();
}

}  // namespace
}  // namespace cw::lab
