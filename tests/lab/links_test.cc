// SPDX-License-Identifier: Apache-2.0
// What a host that sends nothing says about the links of the fabric, against what the switches' ports counted.
#include <gtest/gtest.h>

#include <algorithm>
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
        .lab = "linkstest", .leaves = 3, .spines = 2, .hosts_per_leaf = 2, .link_mbps = kMbps, .ecmp_seed = 1};
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

  // One flow from host 0 to host 2, as fast as the marks of the switches let it be.
  void StartFlow() {
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    JobSpec job;
    job.pairs = {{0, 2}};
    job.duration = absl::Hours(1);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }

  // Mean wait behind each leaf-spine port over the window, ns.
  std::vector<std::pair<LinkDirection, double>> TrueQueues() {
    std::vector<std::pair<LinkDirection, double>> queues;
    int readings = 0;
    for (const absl::Time end = absl::Now() + kWindow; absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
      const std::vector<LinkCounters> links = testbed->fabric().Links();
      queues.resize(links.size());
      for (size_t i = 0; i < links.size(); ++i) {
        const auto bytes =
            static_cast<double>(links[i].offered_bytes - std::min(links[i].carried_bytes, links[i].offered_bytes));
        queues[i].first = links[i].link;
        queues[i].second += bytes * 8e3 / kMbps;
      }
      ++readings;
    }
    for (auto& [link, ns] : queues) ns /= readings;
    return queues;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(LinksOnFabric, AnIdleHostNamesTheLinkThatQueuesAndTheSpineThatDied) {
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartFlow());
  absl::SleepFor(absl::Seconds(3));
  const std::vector<std::pair<LinkDirection, double>> truth = TrueQueues();
  const v1::LinksReply links = Links();
  ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();

  LinkDirection busiest;
  double busiest_ns = 0;
  for (const auto& [link, ns] : truth) {
    if (link.tier != LinkDirection::Tier::kSpine || ns <= busiest_ns) continue;
    busiest = link;
    busiest_ns = ns;
  }
  ASSERT_GT(busiest_ns, 50e3) << "the flow makes no queue: this test shows nothing";
  const v1::Link& named = links.links(0);
  std::printf("%s: %.0f us behind the port, %.0f us +- %.0f us by host %d's probes\n", busiest.Name().c_str(),
              busiest_ns / 1e3, named.queue_ns() / 1e3, named.queue_error_ns() / 1e3, kObserver);
  EXPECT_EQ(EndOf(busiest), named.to()) << links.ShortDebugString();
  EXPECT_NEAR(busiest_ns, named.queue_ns(), 0.5 * busiest_ns);
  for (int i = 1; i < links.links_size(); ++i)
    EXPECT_LT(links.links(i).queue_ns(), 0.5 * named.queue_ns()) << links.links(i).ShortDebugString();

  emulator.reset();
  const LinkDirection cut = LinkDirection::LeafToSpine(0, busiest.spine);
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
