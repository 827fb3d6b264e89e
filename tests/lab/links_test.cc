// SPDX-License-Identifier: Apache-2.0
// What a host that sends nothing says about the links of the fabric, against what was done to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/evidence.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/port_queue.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kMbps = 200, kSlowMbps = 20, kObserver = 1;
constexpr uint32_t kWindowPackets = 4, kDataBytes = 4096;
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
    // One-way delays begin when a peer's clock is known. A queue that stands from then on would be taken for distance.
    ASSERT_TRUE(Eventually([&] { return KnowsDelays(); })) << "too few delays are known on some path";
  }

  // A second of them on each path.
  bool KnowsDelays() {
    constexpr uint64_t kDelays = 50;
    const absl::StatusOr<v1::PathsReply> reply = testbed->agent(kObserver).Paths({});
    if (!reply.ok()) return false;
    for (const v1::Pair& pair : reply->pairs()) {
      for (const v1::Path& path : pair.paths()) {
        if (path.windows_size() < 2 || path.windows(1).queueing_forward().samples() < kDelays) return false;
      }
    }
    return reply->pairs_size() > 0;
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
  void StartFlow(uint32_t window = kWindowPackets, uint32_t path_mtu = kDataBytes) {
    absl::StatusOr<std::unique_ptr<Emulator>> made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    JobSpec job;
    job.pairs = {{0, 2}};
    job.window = window;
    job.path_mtu = path_mtu;
    job.ack_every = 1;
    job.duration = absl::Hours(1);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
  }

  // So much waits for the link, and the seconds that the agent sums up from now on are of that alone.
  bool QueueStands(const LinkDirection& link, uint64_t bytes) {
    absl::StatusOr<std::unique_ptr<PortQueue>> port = PortQueue::Open(testbed->fabric(), link);
    EXPECT_TRUE(port.ok()) << port.status();
    return port.ok() && Eventually([&] { return (*port)->WaitingBytes().value_or(0) >= bytes; }) &&
           AfterLooks(*testbed, 1);
  }

  // What a packet that comes now waits for the link, on average from now on: by the kernel's count of what is queued,
  // less half of the packet that is on its way out already.
  double MeanWaitNs(const LinkDirection& link, uint32_t packet_bytes, absl::Duration span) const {
    const double mbps = testbed->fabric().LinkRateMbps(link).value_or(0);
    absl::StatusOr<std::unique_ptr<PortQueue>> port = PortQueue::Open(testbed->fabric(), link);
    EXPECT_TRUE(port.ok()) << port.status();
    if (!port.ok()) return 0;
    double sum = 0;
    int64_t count = 0;
    for (const absl::Time end = absl::Now() + span; absl::Now() < end; absl::SleepFor(absl::Milliseconds(3)), ++count) {
      const absl::StatusOr<uint64_t> waiting = (*port)->WaitingBytes();
      EXPECT_TRUE(waiting.ok()) << waiting.status();
      const auto bytes = static_cast<double>(waiting.value_or(0));
      sum += bytes - std::min(bytes, static_cast<double>(packet_bytes)) / 2;
    }
    return sum / static_cast<double>(std::max<int64_t>(count, 1)) * 8e3 / mbps;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

// How far the queue that an idle host's probes tell of a link is from what waits there.
TEST_F(LinksOnFabric, AHopsQueueIsWhatItsPortHolds) {
  ASSERT_NE(testbed, nullptr);
  struct Case {
    bool up;
    double mbps;
    uint32_t window, path_mtu;
  };
  std::vector<double> errors;
  for (const Case& c : {Case{true, 20, 4, 4096}, Case{true, 50, 48, 1024}, Case{false, 50, 24, 1024}}) {
    ASSERT_NO_FATAL_FAILURE(StartFlow(c.window, c.path_mtu));
    int spine = -1;
    ASSERT_TRUE(Eventually([&] { return (spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0)) >= 0; }));
    const LinkDirection link = c.up ? LinkDirection::LeafToSpine(0, spine) : LinkDirection::SpineToLeaf(spine, 1);
    ASSERT_TRUE(testbed->fabric().SetLinkRate(link, c.mbps).ok());
    ASSERT_TRUE(QueueStands(link, c.window * c.path_mtu / 2));
    const double true_ns = MeanWaitNs(link, c.path_mtu, kWindow);
    const v1::LinksReply links = Links();
    emulator.reset();
    ASSERT_TRUE(testbed->fabric().SetLinkRate(link, kMbps).ok());
    ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();
    double told_ns = 0;
    for (const v1::Link& each : links.links()) told_ns = each.to() == EndOf(link) ? each.queue_ns() : told_ns;
    errors.push_back(std::abs(told_ns / true_ns - 1));
    std::printf("%s at %.0f Mbit/s: %.0f us by host %d's probes, %.0f us by the port's queue: %.1f %% off\n",
                link.Name().c_str(), c.mbps, told_ns / 1e3, kObserver, true_ns / 1e3, 100 * errors.back());
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[errors.size() / 2], 0.2) << "the median; the aim of cwctl links";
}

// One uplink is slow, so that what waits for it (milliseconds) stands far above what a busy machine adds to every path.
TEST_F(LinksOnFabric, AnIdleHostNamesTheLinkThatQueuesAndTheOneThatDied) {
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartFlow());
  int spine = -1;
  ASSERT_TRUE(Eventually([&] { return (spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0)) >= 0; }));
  const LinkDirection slow = LinkDirection::LeafToSpine(0, spine);
  ASSERT_TRUE(testbed->fabric().SetLinkRate(slow, kSlowMbps).ok());
  ASSERT_TRUE(QueueStands(slow, kWindowPackets * kDataBytes / 2));
  const double true_ns = MeanWaitNs(slow, kDataBytes, kWindow);
  const v1::LinksReply links = Links();
  emulator.reset();
  ASSERT_GT(links.links_size(), 6) << links.ShortDebugString();
  const v1::Link& named = links.links(0);
  std::printf("%s: %.0f us +- %.0f us by host %d's probes, %.0f us by the port's queue\n", slow.Name().c_str(),
              named.queue_ns() / 1e3, named.queue_error_ns() / 1e3, kObserver, true_ns / 1e3);
  EXPECT_EQ(EndOf(slow), named.to()) << links.ShortDebugString();
  EXPECT_GT(named.queue_ns(), true_ns / 1.5);
  EXPECT_LT(named.queue_ns(), true_ns * 1.5);
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
