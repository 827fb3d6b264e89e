// SPDX-License-Identifier: Apache-2.0
// Queue pairs that are slower than the probes on their path, in queues that the kernel makes: who is told so, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/lab/steering_rig.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr double kLinkMbps = 200;
constexpr uint8_t kOwnTos = 26 << 2 | 2, kOtherTos = 2;

// tc-u32(8): RoCE packets of a class, or those that carry data (opcodes of sends, writes and read requests).
std::string OfClass(uint8_t tos) {
  return absl::StrFormat("match ip dport 4791 0xffff match ip dsfield 0x%02x 0xfc", tos & 0xfc);
}
constexpr char kData[] = "match ip dport 4791 0xffff match u8 0x00 0xf0 at 28";

struct SlowQueue {
  std::string match;
  double mbps = 0;
};

// A queue of its own on the link's sending port for what each match fits, and the link's rate for the rest.
absl::Status AddQueues(const Fabric& fabric, const LinkDirection& link, const std::vector<SlowQueue>& queues) {
  const SwitchPort port = SendingPort(fabric.spec(), link);
  const std::string dev = absl::StrCat(" dev ", port.device, " ");
  const auto rate = [](double mbps) {
    return absl::StrFormat("htb rate %.0fkbit burst 5k cburst 5k quantum 10000", mbps * 1e3);
  };
  std::vector<std::string> lines = {absl::StrCat("qdisc replace", dev, "root handle 2: htb default 10"),
                                    absl::StrCat("class add", dev, "parent 2: classid 2:10 ", rate(kLinkMbps))};
  for (size_t i = 0; i < queues.size(); ++i) {
    const std::string id = absl::StrCat("2:", 20 + i);
    lines.push_back(absl::StrCat("class add", dev, "parent 2: classid ", id, " ", rate(queues[i].mbps)));
    lines.push_back(
        absl::StrCat("filter add", dev, "parent 2: protocol ip prio 1 u32 ", queues[i].match, " flowid ", id));
  }
  return RunInNetns(NetnsPath(port.netns), [&] {
    return RunTool({"tc", "-batch", "-"}, absl::StrJoin(lines, "\n") + "\n").status();
  });
}

// As much as its window lets it: the slowest queue on its way always holds nearly that.
JobSpec Windowed(const std::string& name, JobPair pair, uint8_t tos, uint32_t window) {
  JobSpec job = SteadyTraffic(absl::ZeroDuration(), 1);
  job.name = name;
  job.pairs = {pair};
  job.tos = tos;
  job.window = window;
  job.ack_every = 4;
  return job;
}

class Gaps : public Steering {
 protected:
  // What the jobs send, by their name. Receivers send acknowledgements, which are flows of that name as well.
  std::map<std::string, v1::Flow> Flows() {
    std::map<std::string, v1::Flow> flows;
    for (int host : {0, 1}) {
      const v1::QpsReply reply = testbed->agent(host).Qps({}).value_or(v1::QpsReply());
      for (const v1::Flow& flow : reply.flows()) {
        if ((flow.label() == "receiver") == (host == 1)) flows[flow.label()] = flow;
      }
    }
    return flows;
  }
  void Show() {
    for (const auto& [name, flow] : Flows())
      std::printf("%s (%s: %s, %.2f Mbit/s): %s\n", name.c_str(), flow.cause().c_str(), flow.cause_text().c_str(),
                  flow.rate_bps() / 1e6, flow.gap().ShortDebugString().c_str());
    for (const FlowReport& flow : emulator->TakeSnapshot().flows)
      std::printf("h%d: %lu packets, %lu sent again, %lu timeouts%s\n", flow.source, flow.requester.data_packets,
                  flow.requester.retransmissions, flow.requester.timeouts, flow.dead ? ", dead" : "");
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), "gap"))
      std::printf("%.1f s: %s\n", mark.at_s, mark.text.c_str());
  }
};

// Of three queue pairs that wait as long in the fabric, one does so where the probes wait, too.
TEST_F(Gaps, AreToldWithTheirCauseWhereProbesDoNotWaitAlike) {
  TestbedSpec spec = SmallSpec("observe");
  spec.fabric.spines = 2;
  ASSERT_NO_FATAL_FAILURE(Up(spec));
  Fabric& fabric = testbed->fabric();
  // Uplinks: best effort waits for itself, and the class of the queue pairs and their probes for itself. The last port
  // to h0: its data waits for h0, and nothing else does.
  for (int spine : {0, 1}) {
    const absl::Status status =
        AddQueues(fabric, LinkDirection::LeafToSpine(0, spine), {{OfClass(kOtherTos), 4}, {OfClass(kOwnTos), 20}});
    ASSERT_TRUE(status.ok()) << status;
  }
  const absl::Status status = AddQueues(fabric, LinkDirection::LeafToHost(0), {{kData, 4}});
  ASSERT_TRUE(status.ok()) << status;

  auto made = testbed->NewEmulator(1);
  ASSERT_TRUE(made.ok()) << made.status();
  emulator = std::move(*made);
  ASSERT_TRUE(emulator->AddJob(Windowed("alike", {0, 1}, kOwnTos, 16)).ok());
  ASSERT_TRUE(emulator->AddJob(Windowed("class", {0, 1}, kOtherTos, 16)).ok());
  ASSERT_TRUE(emulator->AddJob(Windowed("receiver", {1, 0}, kOwnTos, 16)).ok());
  ASSERT_TRUE(emulator->Start().ok());
  const bool told = Eventually(
      [&] {
        std::map<std::string, v1::Flow> flows = Flows();
        return flows["class"].gap().finding() && flows["receiver"].gap().finding() && flows["alike"].has_gap();
      },
      absl::Minutes(2));
  Show();
  ASSERT_TRUE(told);

  std::map<std::string, v1::Flow> flows = Flows();
  EXPECT_EQ(flows["class"].gap().cause(), "class");
  EXPECT_EQ(flows["class"].cause(), "none") << "its acknowledgements come late, and not for its receiver";
  EXPECT_EQ(flows["receiver"].gap().cause(), "receiver");
  EXPECT_FALSE(flows["alike"].gap().finding()) << flows["alike"].gap().ShortDebugString();
  EXPECT_EQ(flows["alike"].gap().lasting_s(), 0);
  EXPECT_GT(flows["alike"].gap().flow_p50_ns(), 1e6) << "it waits, too";
  EXPECT_EQ(Told("gap", "it is in DSCP 0, the probes in 26").size(), 1u);
  EXPECT_EQ(Told("gap", "its receiver is slow").size(), 1u);
  EXPECT_EQ(Told("gap", "").size(), 2u);
}

}  // namespace
}  // namespace cw::lab
