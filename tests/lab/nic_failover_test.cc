// SPDX-License-Identifier: Apache-2.0
// NIC failover on the lab's fabric: hosts with two NICs, of which one is cut, and queue pairs that do not notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

class NicFailover : public ::testing::Test {
 protected:
  // second_nics: the leaves of the hosts' eth1.
  void Up(const std::string& mode = "protect", const std::vector<int>& second_nics = {0, 1}, bool ipv6 = false) {
    TestbedSpec spec;
    spec.fabric = {.lab = "nictest", .leaves = 2, .spines = 2, .link_mbps = 400, .ipv6 = ipv6, .ecmp_seed = 1};
    spec.mode = mode;
    spec.second_nics = second_nics;
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.adjust = [this](int host, config::Config& config) {
      config.steering.nic_failover = true;
      if (adjust) adjust(host, config);
    };
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
  }
  void DrainEth0(int host) {
    v1::DrainRequest drain;
    drain.set_kind(v1::DRAIN_KIND_NIC);
    drain.set_what("eth0");
    const auto done = testbed->agent(host).Drain(drain);
    ASSERT_TRUE(done.ok()) << done.status();
    ASSERT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() > 0 && NicOf(1, 0).pairs_carried() > 0; }));
  }
  static JobSpec PatientTraffic() {
    JobSpec job = Traffic();
    job.timeout = 19;  // 2.1 s, seven times: longer than a host needs to be back, or to be given up
    return job;
  }
  static JobSpec Traffic() {
    JobSpec job;
    job.name = "traffic";
    job.pairs = {{0, 1}, {1, 0}};
    job.qps_per_pair = 2;
    job.message_bytes = 64 << 10;
    job.duration = absl::Hours(1);
    job.packet_interval = absl::Milliseconds(1);
    job.path_mtu = 1024;
    job.rate.reacts = false;
    job.timeout = 16;  // 268 ms, seven times
    return job;
  }
  // Queue pairs between the hosts' eth0, in both directions.
  void StartTraffic(const JobSpec& job = Traffic()) {
    auto made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
    ASSERT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(200)); }));
    ASSERT_TRUE(Eventually([&] { return Seen(0) && Seen(1); })) << "by the agents of both hosts";
  }
  // The agent has seen a hundred packets of each flow that it sends or receives.
  bool Seen(int host) {
    v1::QpsRequest request;
    request.set_received(true);
    const v1::QpsReply reply = testbed->agent(host).Qps(request).value_or(v1::QpsReply());
    const Snapshot now = emulator->TakeSnapshot();
    return std::all_of(now.flows.begin(), now.flows.end(), [&](const FlowReport& flow) {
      return std::any_of(reply.flows().begin(), reply.flows().end(), [&](const v1::Flow& seen) {
        const bool same = flow.source == host ? !seen.received() && seen.remote_qpn() == flow.destination_qpn
                                              : seen.received() && seen.local_qpn() == flow.destination_qpn;
        return same && seen.packets() > 100;
      });
    });
  }
  // Every flow delivers something within `within`, from now on.
  bool Delivering(absl::Duration within) { return EachFlowDelivers(*emulator, within); }
  // Longest time from `since_ns` until a flow delivered again, in ms; -1: one has not.
  double RecoveryMs(int64_t since_ns) {
    double worst = 0;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) {
      const std::optional<int64_t> first_ns = emulator->FirstDeliveryAfter(flow.id, since_ns).in_order_ns;
      if (!first_ns) return -1;
      worst = std::max(worst, static_cast<double>(*first_ns - since_ns) / 1e6);
    }
    return worst;
  }
  v1::NicStatus NicOf(int host, int nic) {
    auto reply = testbed->agent(host).Status();
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->nics_size() > nic ? reply->nics(nic) : v1::NicStatus();
  }
  // Seconds since a probe of the host was answered.
  double SilentS(int host) {
    const v1::PathsReply reply = testbed->agent(host).Paths({}).value_or(v1::PathsReply());
    double newest_s = reply.pairs().empty() ? -1 : 3600;
    for (const v1::Pair& pair : reply.pairs()) newest_s = std::min(newest_s, pair.last_reply_ago_s());
    return newest_s;
  }
  void ExpectNoneDied() {
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead) << "flow " << flow.id;
  }
  void CutSilently(int port, bool cut) {
    for (const LinkDirection& link : {LinkDirection::HostToLeaf(port), LinkDirection::LeafToHost(port)}) {
      ASSERT_TRUE(testbed->fabric().SetFault(link, cut ? Fault::Drop() : Fault::None()).ok());
    }
  }
  // Flows stop, go on by the other NIC, and come back.
  void CutAndReturn(const std::function<void(bool cut)>& cut) {
    ASSERT_EQ(testbed->CounterSum("nic_carried"), 0u);
    const int64_t cut_ns = MonotonicNs();
    cut(true);
    ASSERT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() > 0 && NicOf(1, 0).pairs_carried() > 0; }));
    ASSERT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(300)); }));
    RecordProperty("recovery_ms", std::to_string(RecoveryMs(cut_ns + 5'000'000)));
    printf("delivered again %.0f ms after the cut\n", RecoveryMs(cut_ns + 5'000'000));
    EXPECT_GT(testbed->CounterSum("nic_carried"), 0u);
    EXPECT_GT(testbed->CounterSum("nic_restored"), 0u);
    EXPECT_EQ(testbed->CounterSum("nic_unknown"), 0u);
    EXPECT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_silent() == 2; })) << "to both NICs of the peer";
    EXPECT_EQ(NicOf(0, 1).pairs_silent(), 0u);
    EXPECT_FALSE(testbed->Events(testbed->origin_ns(), "nic").empty());
    ExpectNoneDied();

    cut(false);
    ASSERT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() == 0 && NicOf(1, 0).pairs_carried() == 0; }));
    EXPECT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(300)); }));
    const uint64_t carried = testbed->CounterSum("nic_carried");
    for (int i = 0; i < 15; ++i) ASSERT_TRUE(EachFlowDelivers(*emulator));
    EXPECT_EQ(testbed->CounterSum("nic_carried"), carried) << "they go by their own NIC";
    EXPECT_EQ(NicOf(0, 0).pairs_silent(), 0u);
    ExpectNoneDied();
  }
  std::function<void(int host, config::Config&)> adjust;
  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(NicFailover, QueuePairsSurviveASilentlyDeadNic) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutAndReturn([&](bool cut) { CutSilently(0, cut); });
}

TEST_F(NicFailover, QueuePairsSurviveALinkThatIsDown) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutAndReturn([&](bool cut) { ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, !cut).ok()); });
}

// A message at a time, so that nothing follows what died, and a timer that does not end within the test.
TEST_F(NicFailover, WhatDiedWithTheNicIsAskedForAtOnce) {
  Up();
  ASSERT_NE(testbed, nullptr);
  JobSpec job = Traffic();
  job.message_bytes = 4096;
  job.outstanding = 1;
  job.timeout = 28;  // 18 minutes
  StartTraffic(job);
  CutAndReturn([&](bool cut) { CutSilently(0, cut); });
  EXPECT_GT(testbed->CounterSum("tail_naks"), 0u);
}

// Both have the same name of their own, and others in the one list of peers of both.
TEST_F(NicFailover, HostsGoByTheNamesThatThePeerFilesHave) {
  std::map<std::string, config::PeerConfig> tables;
  adjust = [&](int host, config::Config& config) {
    config.host_name = "zz";  // behind either of the names
    for (const config::PeerConfig& peer : config.peers) tables[peer.name] = peer;
    const auto own = tables.find(absl::StrCat("h", host));
    if (own != tables.end()) config.peers.push_back(own->second);
  };
  Up();
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(testbed->LoseAgent(0).ok());
  ASSERT_TRUE(testbed->StartAgent(0).ok());  // now its own table is known here, too
  ASSERT_TRUE(testbed->WaitPathsUp(absl::Seconds(30)).ok());
  for (int host : {0, 1}) EXPECT_EQ(testbed->agent(host).Status()->host_name(), absl::StrCat("h", host));
  StartTraffic();
  CutSilently(0, true);
  EXPECT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() > 0 && NicOf(1, 0).pairs_carried() > 0; }));
}

// Rails: the second NICs hang on each other's leaf.
TEST_F(NicFailover, ByANicOnAnotherLeaf) {
  Up("protect", {1, 0});
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutAndReturn([&](bool cut) { CutSilently(0, cut); });
}

TEST_F(NicFailover, OverIpv6) {
  Up("protect", {0, 1}, /*ipv6=*/true);
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutAndReturn([&](bool cut) { CutSilently(0, cut); });
}

TEST_F(NicFailover, OverIpv6ALinkThatIsDown) {
  Up("protect", {0, 1}, /*ipv6=*/true);
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutAndReturn([&](bool cut) { ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, !cut).ok()); });
}

// Nobody but the kernel sees these queue pairs, so nothing else could move them off a NIC that shall be pulled.
TEST_F(NicFailover, ADrainedNicIsLeftAndTakenBack) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  v1::DrainRequest drain;
  drain.set_kind(v1::DRAIN_KIND_NIC);
  drain.set_what("eth0");
  const auto done = testbed->agent(0).Drain(drain);
  ASSERT_TRUE(done.ok()) << done.status();
  const auto state = [&] {
    const v1::DrainsReply reply = testbed->agent(0).Drains().value_or(v1::DrainsReply());
    return reply.drains_size() == 1 ? reply.drains(0) : v1::Drain();
  };
  // What the host sends as from its eth0, by the switches' counts.
  const auto sent = [&] {
    uint64_t bytes = 0;
    const auto flows = testbed->fabric().Flows();
    EXPECT_TRUE(flows.ok()) << flows.status();
    for (const FlowCounters& flow : flows.value_or(std::vector<FlowCounters>())) {
      if (!flow.probe && flow.source == testbed->fabric().HostAddr(0)) bytes += flow.bytes;
    }
    return bytes;
  };
  ASSERT_GT(sent(), 0u);
  ASSERT_TRUE(Eventually([&] { return state().quiet_s() > 2; })) << state().DebugString();
  EXPECT_EQ(state().flows(), 0u);
  EXPECT_GT(state().flows_moved(), 0u);
  EXPECT_EQ(state().held_size(), 0);
  EXPECT_EQ(NicOf(0, 0).pairs_silent(), 0u) << "it answers";
  const uint64_t before = sent();
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(Delivering(absl::Milliseconds(500)));
  EXPECT_EQ(sent(), before);

  v1::UndrainRequest undrain;
  undrain.set_all(true);
  ASSERT_TRUE(testbed->agent(0).Undrain(undrain).ok());
  ASSERT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() == 0 && NicOf(1, 0).pairs_carried() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(300)); }));
  EXPECT_GT(sent(), before);
  ExpectNoneDied();
}

// Of the two this host chooses what carries; the other one goes by its word, and is told nothing of its own accord.
TEST_F(NicFailover, AHostThatRebootsDuringADrainGetsItsPacketsByTheirOwnNic) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic(PatientTraffic());
  ASSERT_NO_FATAL_FAILURE(DrainEth0(0));
  ASSERT_TRUE(testbed->LoseAgent(0).ok());
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  EXPECT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() == 0 && NicOf(1, 0).pairs_carried() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(300)); }));
  ExpectNoneDied();
}

TEST_F(NicFailover, AHostWhoseProgramsAreTakenAwayGetsNothingThatItWouldHaveToPutBack) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic(PatientTraffic());
  ASSERT_NO_FATAL_FAILURE(DrainEth0(0));
  ASSERT_TRUE(testbed->LoseAgent(1).ok());
  EXPECT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_carried() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Delivering(absl::Milliseconds(300)); }));
  ExpectNoneDied();
}

TEST_F(NicFailover, ObserveOnlyTells) {
  Up("observe");
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutSilently(0, true);
  EXPECT_TRUE(Eventually([&] { return NicOf(0, 0).pairs_silent() > 0; }));
  EXPECT_TRUE(AfterLooks(*testbed, 1));
  EXPECT_EQ(NicOf(0, 0).pairs_carried(), 0u);
  EXPECT_EQ(testbed->CounterSum("nic_carried"), 0u);
  EXPECT_FALSE(testbed->Events(testbed->origin_ns(), "nic").empty());
}

// Neither a dead peer nor its dead agent is a dead NIC.
TEST_F(NicFailover, APeerThatIsGoneIsNoNicThatIsGone) {
  Up();
  ASSERT_NE(testbed, nullptr);
  StartTraffic();
  CutSilently(1, true);
  CutSilently(testbed->second_port(1), true);
  ASSERT_TRUE(Eventually([&] { return SilentS(0) > 1 && SilentS(1) > 1; }));
  for (int host : {0, 1}) {
    for (int nic : {0, 1}) EXPECT_EQ(NicOf(host, nic).pairs_carried(), 0u) << host << " " << nic;
  }
}

}  // namespace
}  // namespace cw::lab
