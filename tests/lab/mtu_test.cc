// SPDX-License-Identifier: Apache-2.0
// A smaller MTU somewhere between two hosts, while queue pairs send packets of 4096 bytes: it is named with its size,
// on the right path or NIC; no path is called dead for it, and no host slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/agent_matrix.h"
#include "tests/lab/agent_rig.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(50);  // ten times what it is to take

class Mtu : public AgentOnFabric {
 protected:
  void UpWithTraffic() {
    TestbedSpec spec = SmallSpec();
    spec.fabric.lab = "mtu";
    spec.mode = ModeAsked();
    Up(spec);
    ASSERT_NE(testbed, nullptr);
    JobSpec job = SteadyTraffic(absl::Milliseconds(4), 4);
    job.path_mtu = 4096;
    job.timeout = 20;  // NCCL's: its queue pairs give up after half a minute
    ASSERT_NO_FATAL_FAILURE(StartJob(job));
    ASSERT_TRUE(Eventually([&] {
      const std::vector<v1::Flow> flows = FlowsOf(0);
      return flows.size() == 4 &&
             std::all_of(flows.begin(), flows.end(), [](const v1::Flow& flow) { return flow.packets() > 250; });
    }));
    ASSERT_EQ(Alerts(), "") << "all fits so far";
    ASSERT_NO_FATAL_FAILURE(TakeOverAsAsked(*testbed, 0));
  }

  void SetMtu(const std::string& netns, const std::string& device, int mtu) {
    changed_ns_ = MonotonicNs();
    EXPECT_TRUE(RunInNetns(netns, [&] {
                  const std::string line = absl::StrCat("ip link set ", device, " mtu ", mtu);
                  return std::system(line.c_str()) == 0 ? absl::OkStatus() : absl::InternalError(line);
                }).ok());
  }

  // What was said of paths, at both ends, as alerts.
  std::string Alerts() {
    std::string all;
    for (const int host : {0, 1}) {
      v1::EventsRequest request;
      request.set_type("path");
      (void)testbed->agent(host).Events(request, [&](const v1::Event& event) {
        if (event.severity() == v1::SEVERITY_ALERT) absl::StrAppend(&all, "h", host, ": ", event.text(), "\n");
        return true;
      });
    }
    return all;
  }
  bool Soon(const char* what, const std::function<bool()>& done) {
    const bool came = Eventually(done, kLimit);
    std::printf("%s: after %.1f s\n", what, static_cast<double>(MonotonicNs() - changed_ns_) / 1e9);
    return came;
  }
  // Slots of a host on which packets above 1500 bytes are lost.
  std::set<uint32_t> Limited(int host) {
    std::set<uint32_t> slots;
    const v1::PathsReply reply = PathsOf(host);
    for (const v1::Pair& pair : reply.pairs()) {
      for (const v1::Path& path : pair.paths()) {
        // A veth takes a VLAN tag's four bytes more than it sends.
        if (path.largest_arrives() == 1500 || path.largest_arrives() == 1504) slots.insert(path.slot());
      }
    }
    return slots;
  }
  size_t Paths(int host) {
    size_t paths = 0;
    const v1::PathsReply reply = PathsOf(host);
    for (const v1::Pair& pair : reply.pairs()) paths += static_cast<size_t>(pair.paths_size());
    return paths;
  }
  std::string MtuText(int host) {
    const auto status = testbed->agent(host).Status();
    return status.ok() && status->peers_size() > 0 ? status->peers(0).mtu_text() : "";
  }
  void ExpectNobodyElseIsBlamed() {
    for (const Testbed::PathDeath& death : testbed->PathDeaths(testbed->origin_ns())) {
      // True, and why its flows leave it.
      if (!absl::StrContains(death.text, "delivers probes but no data")) ADD_FAILURE() << death.text;
    }
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), "cause")) {
      std::printf("%.1f s: %s\n", mark.at_s, mark.text.c_str());
      EXPECT_THAT(mark.text, ::testing::Not(HasSubstr("slow receiver")));
    }
  }

  int64_t changed_ns_ = 0;
};

TEST_F(Mtu, OfAHostsNicIsNamedAtBothEnds) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  SetMtu(testbed->fabric().HostNetns(1), "eth0", 1500);
  const std::string text = "h1's eth0 has MTU 1500, h0's eth0 4500: packets above 1500 bytes do not pass";
  EXPECT_TRUE(Soon("named", [&] { return MtuText(0) == text && MtuText(1) == text; })) << MtuText(0) << MtuText(1);
  EXPECT_THAT(Alerts(), HasSubstr("h0: " + text));
  EXPECT_THAT(Alerts(), HasSubstr("h1: " + text));
  SetMtu(testbed->fabric().HostNetns(1), "eth0", 4500);
  EXPECT_TRUE(Soon("over", [&] { return MtuText(0).empty() && MtuText(1).empty(); }));
  ExpectNobodyElseIsBlamed();
}

TEST_F(Mtu, OfALeafsPortIsNamedOnThePathsThatTakeIt) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  SetMtu(testbed->fabric().LeafNetns(0), "spine2", 1500);
  EXPECT_TRUE(Soon("named", [&] { return Limited(0).size() == 1 && Limited(1).size() == 1; })) << Alerts();
  // One path of each host; it and the other's take the same spine, and no other path does.
  for (const int host : {0, 1}) {
    const v1::PathsReply paths = PathsOf(host);
    ASSERT_EQ(paths.pairs_size(), 1);
    for (const v1::Path& path : paths.pairs(0).paths()) {
      ASSERT_GE(path.hops_size(), 2);
      std::printf("h%d path %u by %s: %u\n", host, path.slot(), path.hops(1).c_str(), path.largest_arrives());
      EXPECT_EQ(path.state(), v1::PATH_STATE_UP);
    }
  }
  EXPECT_EQ(testbed->fabric().spec().spines, 4);
  Hold(absl::Seconds(5));
  EXPECT_EQ(Limited(0).size(), 1u);
  EXPECT_EQ(Limited(1).size(), 1u);
  EXPECT_EQ(MtuText(0), "");
  EXPECT_THAT(Alerts(), HasSubstr("bytes do not arrive on path"));
  SetMtu(testbed->fabric().LeafNetns(0), "spine2", 4500);
  EXPECT_TRUE(Soon("over", [&] { return Limited(0).empty() && Limited(1).empty(); }));
  ExpectNobodyElseIsBlamed();
}

TEST_F(Mtu, OfAllSpinesIsNamedOnAllPathsAndTheQueuePairsDieOfIt) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const auto all_spines = [&](int mtu) {
    for (int spine = 0; spine < testbed->fabric().spec().spines; ++spine) {
      for (const char* port : {"leaf0", "leaf1"}) SetMtu(testbed->fabric().SpineNetns(spine), port, mtu);
    }
  };
  all_spines(1500);
  EXPECT_TRUE(Soon("named", [&] { return Limited(0).size() == Paths(0) && Limited(1).size() == Paths(1); }))
      << Alerts();
  EXPECT_TRUE(Soon("cause", [&] {
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), "cause")) {
      if (absl::StrContains(mark.text, "packet size")) return true;
    }
    return false;
  }));
  Hold(absl::Seconds(15));  // queue pairs give up
  for (const v1::Flow& flow : FlowsOf(0)) {
    if (flow.received()) continue;
    std::printf("%s: %s, %s\n", flow.id().c_str(), flow.cause().c_str(), flow.cause_text().c_str());
    EXPECT_EQ(flow.cause(), "packet size") << "it does not end with the queue pair";
  }
  all_spines(4500);
  EXPECT_TRUE(Soon("over", [&] { return Limited(0).empty() && Limited(1).empty(); }));
  ExpectNobodyElseIsBlamed();
}

}  // namespace
}  // namespace cw::lab
