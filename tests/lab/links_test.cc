// SPDX-License-Identifier: Apache-2.0
// What a host that sends nothing says about the links of the fabric, against what was done to them.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kMbps = 200, kSlowMbps = 20, kObserver = 1;
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

  // Flows from host 0 to host 2, as fast as the marks of the switches let them be.
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

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

// One uplink is slow, so that what waits for it (milliseconds) stands far above what a busy machine adds to every path.
TEST_F(LinksOnFabric, AnIdleHostNamesTheLinkThatQueuesAndTheOneThatDied) {
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartFlows());
  absl::SleepFor(absl::Seconds(1));
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  const LinkDirection slow = LinkDirection::LeafToSpine(0, spine);
  ASSERT_TRUE(testbed->fabric().SetLinkRate(slow, kSlowMbps).ok());
  absl::SleepFor(absl::Seconds(2));
  absl::SleepFor(kWindow);
  const v1::LinksReply links = Links();
  emulator.reset();
  absl::SleepFor(absl::Seconds(1));
  ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();
  const v1::Link& named = links.links(0);
  std::printf("%s: %.0f us +- %.0f us by host %d's probes\n", slow.Name().c_str(), named.queue_ns() / 1e3,
              named.queue_error_ns() / 1e3, kObserver);
  EXPECT_EQ(EndOf(slow), named.to()) << links.ShortDebugString();
  EXPECT_GT(named.queue_ns(), 1e6) << "less than the switches' first mark";
  for (int i = 1; i < links.links_size(); ++i)
    EXPECT_LT(links.links(i).queue_ns(), 0.5 * named.queue_ns()) << links.links(i).ShortDebugString();

  const LinkDirection cut = LinkDirection::LeafToSpine(0, spine);
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
