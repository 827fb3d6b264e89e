// SPDX-License-Identifier: Apache-2.0
// What a host that sends nothing says about the links of the fabric, against what was done to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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
constexpr uint32_t kWindowPackets = 4;
constexpr absl::Duration kWindow = absl::Seconds(10);  // of what the agent tells

std::string EndOf(const LinkDirection& link) {
  const int port = 2 * link.leaf + (link.toward == LinkDirection::Toward::kUp ? 0 : 1);
  return absl::StrCat("10.1.", link.spine, ".", port);
}

class LinksOnFabric : public ::testing::Test {
 protected:
  // Three leaves, so that a spine's links to the other two are told apart from the one to it.
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = "linkstest",
                   .leaves = 3,
                   .spines = 4,
                   .hosts_per_leaf = 2,
                   .link_mbps = kMbps,
                   .ecn = false,
                   .ecmp_seed = 1};
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

  // A flow from host 0 to host 2 whose window alone holds it back: on a slow link all of its window waits, on any
  // machine and whatever the path. Marks would leave open how long the queue is: senders that heed them may settle
  // below the link's rate, where nothing waits. The window fits into the queue, and waits for less than a round
  // of probes, so that no path is taken for dead or for another one.
  void StartFlow() {
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    JobSpec job;
    job.pairs = {{0, 2}};
    job.window = kWindowPackets;
    job.ack_every = 1;
    job.duration = absl::Hours(1);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }

  // Bytes that were given to the link's queue and have not come out of it: waiting there, or lost.
  int64_t Behind(const LinkDirection& link) const {
    const LinkCounters counters = testbed->fabric().Link(link).value_or(LinkCounters());
    return static_cast<int64_t>(counters.offered_bytes) - static_cast<int64_t>(counters.carried_bytes);
  }
  // Mean of that from now on.
  double MeanBehind(const LinkDirection& link, absl::Duration span) const {
    double sum = 0;
    int64_t count = 0;
    for (const absl::Time end = absl::Now() + span; absl::Now() < end; absl::SleepFor(absl::Milliseconds(3)), ++count) {
      sum += static_cast<double>(Behind(link));
    }
    return sum / static_cast<double>(std::max<int64_t>(count, 1));
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

// One uplink is slow, so that what waits for it (milliseconds) stands far above what a busy machine adds to every path.
TEST_F(LinksOnFabric, AnIdleHostNamesTheLinkThatQueuesAndTheOneThatDied) {
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartFlow());
  absl::SleepFor(absl::Seconds(1));
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  const LinkDirection slow = LinkDirection::LeafToSpine(0, spine);
  ASSERT_TRUE(testbed->fabric().SetLinkRate(slow, kSlowMbps).ok());
  absl::SleepFor(absl::Seconds(2));
  const double mean = MeanBehind(slow, kWindow);
  const v1::LinksReply links = Links();
  emulator.reset();
  absl::SleepFor(absl::Seconds(1));
  const int64_t lost = Behind(slow);
  const double true_ns = (mean - static_cast<double>(lost)) * 8e3 / kSlowMbps;
  ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();
  const v1::Link& named = links.links(0);
  std::printf("%s: %.0f us +- %.0f us by host %d's probes, %.0f us by the bytes that waited\n", slow.Name().c_str(),
              named.queue_ns() / 1e3, named.queue_error_ns() / 1e3, kObserver, true_ns / 1e3);
  EXPECT_EQ(EndOf(slow), named.to()) << links.ShortDebugString();
  EXPECT_GT(named.queue_ns(), 0.5 * true_ns);
  EXPECT_LT(named.queue_ns(), 2 * true_ns);
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
