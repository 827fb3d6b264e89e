// SPDX-License-Identifier: Apache-2.0
// The product on the lab's fabric: real programs, real agents, real packets, checked against what the switches saw.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "maps/abi.h"
#include "tests/lab/agent_rig.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/pause_gate.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {
namespace {

TEST_F(AgentOnFabric, FindsEveryPathAndItsHops) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  const v1::PathsReply reply = PathsOf(0);
  ASSERT_EQ(reply.pairs_size(), 1);
  std::set<int> spines;
  for (const v1::Path& path : reply.pairs(0).paths()) {
    if (!path.assignable()) continue;
    const auto spine = testbed->fabric().PathOf(0, 1, static_cast<uint16_t>(path.udp_port()));
    ASSERT_TRUE(spine.ok());
    spines.insert(*spine);
    ASSERT_GE(path.hops_size(), 2);
    EXPECT_EQ(path.hops(1), absl::StrCat("10.1.", *spine, ".0")) << "path " << path.slot();
  }
  EXPECT_EQ(spines, (std::set<int>{0, 1, 2, 3}));
}

TEST_F(AgentOnFabric, TellsWhatTheSwitchesHashOn) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  const auto check = [&](const std::string& name) {
    auto reply = testbed->agent(0).Doctor();
    EXPECT_TRUE(reply.ok()) << reply.status();
    const v1::DoctorReply checks = reply.value_or(v1::DoctorReply());
    for (const v1::Check& each : checks.checks()) {
      if (each.name() == name) return each;
    }
    return v1::Check();
  };
  const auto hashing = [&] { return testbed->agent(0).Status().value_or(v1::StatusReply()).hashing(); };
  EXPECT_TRUE(Eventually([&] { return hashing() == v1::FABRIC_HASHING_PORTS; }));
  EXPECT_EQ(check("fabric hashing").result(), v1::Check::RESULT_OK);
  EXPECT_EQ(check("mtu eth0").seen(), "4500: carries a RoCE MTU of 4096") << "of the fabric's eth0, not of another";
  const std::map<SwitchHash, v1::FabricHashing> modes = {{SwitchHash::kAddresses, v1::FABRIC_HASHING_SINGLE},
                                                         {SwitchHash::kTtl, v1::FABRIC_HASHING_TTL},
                                                         {SwitchHash::kQpn, v1::FABRIC_HASHING_QPN},
                                                         {SwitchHash::kSpray, v1::FABRIC_HASHING_SPRAYED}};
  for (const auto& [hash, expected] : modes) {
    testbed->fabric().SetHash(hash);
    // A new agent looks at once; one that runs does so when it verifies its paths, every half minute.
    ASSERT_EQ(kill(testbed->agent_pid(0), SIGKILL), 0);
    absl::SleepFor(absl::Milliseconds(500));
    ASSERT_TRUE(testbed->StartAgent(0).ok());
    EXPECT_TRUE(Eventually([&] { return hashing() == expected; })) << "got " << hashing() << " for " << expected;
    const bool moves = expected == v1::FABRIC_HASHING_SINGLE;
    EXPECT_EQ(check("fabric hashing").result(), moves ? v1::Check::RESULT_OK : v1::Check::RESULT_WARN);
    EXPECT_EQ(testbed->agent(0).Status().value_or(v1::StatusReply()).moves_frozen(), !moves);
  }
}

// Which path a flow takes is not known then: no dead slot moves any, and what stands still tries other ports.
TEST_F(AgentOnFabric, WhereSwitchesHashOnTheQpnFlowsLeaveADeadPathByChance) {
  TestbedSpec spec = SmallSpec();
  spec.adjust = [](int, config::Config& config) { config.steering.repair_tails = true; };
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  testbed->fabric().SetHash(SwitchHash::kQpn);
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGKILL), 0);
  absl::SleepFor(absl::Milliseconds(500));
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  const auto hashing = [&] { return testbed->agent(0).Status().value_or(v1::StatusReply()).hashing(); };
  ASSERT_TRUE(Eventually([&] { return hashing() == v1::FABRIC_HASHING_QPN; }));
  ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  for (const v1::Flow& flow : FlowsOf(0)) {
    EXPECT_EQ(flow.udp_port(), flow.udp_port_native());
    EXPECT_EQ(flow.slot(), -1) << "no slot stands for its path";
  }
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  const auto on_spine = [&](int64_t since_ns) {
    int flows = 0;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) flows += testbed->SpineOf(flow, since_ns) == spine;
    return flows;
  };
  ASSERT_GT(on_spine(MonotonicNs() - 50'000'000), 0);
  const absl::StatusOr<int64_t> cut_ns =
      testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop(Fault::Match::kAll));
  ASSERT_TRUE(cut_ns.ok());
  const auto all_move_on = [&] {
    const Snapshot now = emulator->TakeSnapshot();
    return std::all_of(now.flows.begin(), now.flows.end(), [&](const FlowReport& flow) {
      const auto arrival = emulator->FirstDeliveryAfter(flow.id, *cut_ns + 10'000'000).any_ns;
      return arrival.has_value() && testbed->SpineOf(flow, now.taken_ns - 100'000'000) != spine;
    });
  };
  EXPECT_TRUE(Eventually(all_move_on)) << "with ECMP alone they would stay";
  std::printf("all flows moved on after at most %.0f ms, %d throws\n",
              static_cast<double>(MonotonicNs() - *cut_ns) / 1e6,
              static_cast<int>(testbed->CounterSum("flows_rerolled")));
  EXPECT_GT(testbed->CounterSum("flows_rerolled"), 0u);
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u) << "by the slots' verdicts";
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

TEST_F(AgentOnFabric, ShowsQueuePairsWithProcessPathAndDelay) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  StartTraffic(4, /*stamp_every=*/16);
  const auto complete = [&] {
    const v1::QpsReply reply = QpsOf(0);
    int good = 0;
    for (const v1::Flow& flow : reply.flows()) {
      good += flow.local_qpn() != 0 && flow.remote_qpn() != 0 && flow.pid() == static_cast<uint32_t>(getpid()) &&
              flow.slot() >= 0 && flow.owd().samples() > 100;
    }
    return good == 4;
  };
  EXPECT_TRUE(Eventually(complete)) << QpsOf(0).DebugString();
  const Snapshot snapshot = emulator->TakeSnapshot();
  std::map<uint32_t, uint32_t> qpns;
  std::vector<double> true_us;
  for (const FlowReport& flow : snapshot.flows) {
    qpns[flow.destination_qpn] = flow.source_qpn;
    for (const OneWayDelay& delay : flow.delays)
      true_us.push_back(static_cast<double>(delay.received_realtime_ns - delay.sent_realtime_ns) / 1e3);
  }
  ASSERT_FALSE(true_us.empty());
  for (const v1::Flow& flow : FlowsOf(0)) {
    EXPECT_EQ(qpns[flow.remote_qpn()], flow.local_qpn());
    EXPECT_EQ(flow.label(), "traffic");
    // The kernel's own stamps lie inside ours by a few microseconds; a mismatched sample would be off by milliseconds.
    EXPECT_NEAR(flow.owd().p50_ns() / 1e3, Quantile(true_us, 0.5), 200) << "flow " << flow.id();
  }
}

// Killed agents, then a cut: nobody probes, and flows leave by their own answers. Once while the lease runs and flows
// are steered, once when it is over and they are at home.
TEST_F(AgentOnFabric, WithoutAgentsFlowsLeaveADeadSpineByThemselves) {
  for (const absl::Duration lease : {absl::Seconds(60), absl::Seconds(2)}) {
    TestbedSpec spec = SmallSpec();
    spec.adjust = [&](int, config::Config& config) { config.steering.lease = lease; };
    Up(spec);
    ASSERT_NE(testbed, nullptr);
    absl::SleepFor(absl::Seconds(2));
    ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
    for (int host = 0; host < 2; ++host) ASSERT_EQ(kill(testbed->agent_pid(host), SIGKILL), 0);
    absl::SleepFor(absl::Seconds(4));
    const std::vector<FlowReport> before = emulator->TakeSnapshot().flows;
    const int spine = testbed->SpineOf(before[0], MonotonicNs() - 200'000'000);
    ASSERT_GE(spine, 0);
    for (int leaf = 0; leaf < 2; ++leaf)
      ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, leaf), Fault::Drop()).ok());
    const int64_t cut_ns = MonotonicNs();
    EXPECT_TRUE(Eventually([&] {
      const std::vector<FlowReport> now = emulator->TakeSnapshot().flows;
      return std::all_of(now.begin(), now.end(), [&](const FlowReport& flow) {
        const int at = testbed->SpineOf(flow, MonotonicNs() - 50'000'000);
        return at >= 0 && at != spine;
      });
    })) << "lease "
        << lease;
    std::printf("lease %s: all go on %.0f ms after the cut\n", absl::FormatDuration(lease).c_str(),
                static_cast<double>(MonotonicNs() - cut_ns) / 1e6);
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
    for (int host = 0; host < 2; ++host) ASSERT_TRUE(testbed->StartAgent(host).ok());
    EXPECT_TRUE(Eventually([&] { return testbed->CounterSum("moves_blind") > 0; }));
    emulator.reset();
    testbed.reset();
  }
}

TEST_F(AgentOnFabric, LeavesASilentlyDeadSpine) {
  FailoverSpec spec;
  spec.testbed = SmallSpec();
  spec.cuts = 4;
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->AllRecoveries().empty());
  EXPECT_EQ(result->NotRecovered(), 0);
  EXPECT_EQ(result->flows_lost, 0);
  // A stalled machine can bring one about; more than a few would be a fault of the rule. bench-failover counts them.
  EXPECT_LE(result->wrong_verdicts, 2);
  EXPECT_EQ(result->icrc_errors, 0u);
  EXPECT_LT(Quantile(result->AllRecoveries(), 1), 60) << "ten times what is expected";
}

// Ports are dealt out anew twice with each reboot, and a pair has 16 slots: 24 flows' own ports have not all one.
TEST_F(AgentOnFabric, MoreFlowsThanSlotsSurviveASpineThatReboots) {
  FailoverSpec spec;
  spec.testbed = SmallSpec();
  spec.testbed.mode = "optimize";
  spec.kind = CutKind::kReboot;
  spec.background_share = 0.3;
  spec.hold = absl::Seconds(1);
  spec.cuts = 3;
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->cuts.size(), 3u);
  EXPECT_EQ(result->flows_lost, 0);
  EXPECT_EQ(result->icrc_errors, 0u);
}

// A path that loses one packet in ten is not dead, and as bad.
TEST_F(AgentOnFabric, LeavesAPathThatLosesATenth) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  Fabric& fabric = testbed->fabric();
  const auto lossy = [&](const v1::Path& path) {
    return path.lossy() && fabric.PathOf(0, 1, static_cast<uint16_t>(path.udp_port())).value_or(-1) == 2;
  };
  const auto count = [&](bool flows) {
    int sum = 0;
    const v1::PathsReply reply = PathsOf(0);
    for (const v1::Path& path : reply.pairs(0).paths()) {
      EXPECT_TRUE(!path.lossy() || lossy(path)) << "path " << path.slot() << " takes another spine";
      if (lossy(path)) sum += flows ? static_cast<int>(path.flows()) : 1;
    }
    return sum;
  };
  ASSERT_TRUE(fabric.SetFault(LinkDirection::LeafToSpine(0, 2), Fault::Share(0.1)).ok());
  EXPECT_TRUE(Eventually([&] { return count(false) > 0 && count(true) == 0; })) << PathsOf(0).DebugString();
  EXPECT_FALSE(testbed->Events(testbed->origin_ns(), "path").empty());
  const v1::PathsReply peer = PathsOf(1);
  for (const v1::Path& path : peer.pairs(0).paths()) EXPECT_FALSE(path.lossy()) << "the way back is whole";
  ASSERT_TRUE(fabric.ClearFault(LinkDirection::LeafToSpine(0, 2)).ok());
  EXPECT_TRUE(Eventually([&] { return count(false) == 0; }, absl::Seconds(40)));
  emulator->Stop();
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

// The classes of the probes of both hosts, and of their answers, that the switches saw since then.
std::set<int> ProbesClasses(Testbed& testbed, int64_t since_ns) {
  std::set<int> classes;
  const absl::StatusOr<std::vector<FlowCounters>> flows = testbed.fabric().Flows();
  EXPECT_TRUE(flows.ok()) << flows.status();
  if (!flows.ok()) return classes;
  for (const FlowCounters& flow : *flows) {
    if (flow.probe && flow.last_ns > since_ns) classes.insert(flow.last_dscp);
  }
  return classes;
}

// By the switches' counts. The receiver sends nothing but acknowledgements, and its probes follow those.
TEST_F(AgentOnFabric, ProbesRideInTheClassOfTheFlows) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  const auto rides_in = [&](int dscp) {
    const int64_t since_ns = MonotonicNs();
    absl::SleepFor(absl::Milliseconds(300));
    return ProbesClasses(*testbed, since_ns) == std::set<int>{dscp};
  };
  EXPECT_TRUE(Eventually([&] { return rides_in(0); })) << "no flow yet";
  EXPECT_EQ(PathsOf(0).pairs(0).dscp_from(), "default");
  ASSERT_NO_FATAL_FAILURE(StartTraffic(4));
  EXPECT_TRUE(Eventually([&] { return rides_in(26); }, absl::Seconds(3)));
  for (int host : {0, 1}) {
    EXPECT_EQ(PathsOf(host).pairs(0).dscp(), 26u);
    EXPECT_EQ(PathsOf(host).pairs(0).dscp_from(), "flows");
  }
  emulator->Stop();
  absl::SleepFor(absl::Seconds(1));
  EXPECT_TRUE(rides_in(26)) << "kept while nothing is sent";
  JobSpec other = SteadyTraffic(absl::Microseconds(500));
  other.tos = 34 << 2 | 2;
  ASSERT_NO_FATAL_FAILURE(StartJob(other));
  EXPECT_TRUE(Eventually([&] { return rides_in(34); }));
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u) << "a change of class is no death";
}

// Priority flow control holds one class back: the path is silent, and not dead, because another class passes.
TEST_F(AgentOnFabric, APausedClassIsNotADeadPath) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  Fabric& fabric = testbed->fabric();
  const LinkDirection link = LinkDirection::SpineToLeaf(2, 1);
  const auto in_state = [&](v1::PathState state) {
    int paths = 0;
    const v1::PathsReply reply = PathsOf(0);
    for (const v1::Path& path : reply.pairs(0).paths()) {
      if (path.state() != state) continue;
      EXPECT_EQ(fabric.PathOf(0, 1, static_cast<uint16_t>(path.udp_port())).value_or(-1), 2);
      ++paths;
    }
    return paths;
  };
  const auto told = [&](const std::string& text) {
    int events = 0;
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), "path")) events += absl::StrContains(mark.text, text);
    return events;
  };
  {
    auto gate = PauseGate::Open(fabric, link);
    ASSERT_TRUE(gate.ok()) << gate.status();
    // The kernel drops what comes while it puts other queues on a port: that is no pause.
    absl::SleepFor(absl::Milliseconds(200));
    ASSERT_TRUE(Eventually([&] { return in_state(v1::PATH_STATE_DEAD) == 0; }));
    const int before = told("is dead");
    ASSERT_TRUE((*gate)->Pause().ok());
    EXPECT_TRUE(Eventually([&] { return in_state(v1::PATH_STATE_PAUSED) > 0; }, absl::Seconds(1)));
    EXPECT_EQ(in_state(v1::PATH_STATE_DEAD), 0);
    ASSERT_TRUE((*gate)->Resume().ok());
    EXPECT_TRUE(Eventually([&] { return told("goes on: it was paused") > 0; }));
    EXPECT_EQ(in_state(v1::PATH_STATE_PAUSED), 0);
    // On a busy machine the other class's answer may come after the verdict, which is then taken back.
    EXPECT_LE(told("is dead") - before, told("was paused, not dead")) << "nothing failed";
  }
  EXPECT_GT(told("paused, not dead"), 0);
  if (HasFailure()) {
    for (const Mark& mark : testbed->Events(testbed->origin_ns(), "path"))
      std::printf("%.3f s: %s\n", mark.at_s, mark.text.c_str());
  }
  ASSERT_TRUE(Eventually([&] { return in_state(v1::PATH_STATE_DEAD) == 0; }));
  const int before_cut = told("is dead");
  ASSERT_TRUE(fabric.SetFault(link, Fault::Drop(Fault::Match::kAll)).ok());
  EXPECT_TRUE(Eventually([&] { return told("is dead") > before_cut; }));
  EXPECT_GT(in_state(v1::PATH_STATE_DEAD), 0);
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead);
}

// One short message at a time: whatever dies with a path is the end of one, and only the transport timer, 4.3 s, would
// send it again.
TEST_F(AgentOnFabric, EndsOfMessagesThatDiedWithAPathAreResentAtOnce) {
  for (CutKind kind : {CutKind::kForward, CutKind::kReverse, CutKind::kBoth}) {
    SCOPED_TRACE(static_cast<int>(kind));
    FailoverSpec spec;
    spec.testbed = SmallSpec();
    spec.cuts = 4;
    spec.kind = kind;
    spec.tails = true;
    spec.timeout = 20;
    spec.testbed.adjust = [](int, config::Config& config) { config.steering.repair_tails = true; };
    const auto result = RunFailover(spec);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->flows_lost, 0);
    EXPECT_EQ(result->icrc_errors, 0u);
    EXPECT_GT(result->resends_asked, 0u);
    std::printf("stall per cut p50 %.1f, max %.1f ms; %d resends asked for\n", Quantile(result->CutStalls(), 0.5),
                Quantile(result->CutStalls(), 1), static_cast<int>(result->resends_asked));
    EXPECT_GT(Quantile(result->CutStalls(), 1), 1) << "nothing stalled: the cuts hit no message";
    EXPECT_LT(Quantile(result->CutStalls(), 1), 200) << "ten times the aim";
  }
}

TEST_F(AgentOnFabric, WhatALossyPathLostLastIsResentWhenItIsLeft) {
  FailoverSpec spec;
  spec.testbed = SmallSpec();
  spec.cuts = 3;
  spec.kind = CutKind::kShare;
  spec.drop_share = 0.1;
  spec.hold = absl::Seconds(1);
  spec.timeout = 20;
  spec.testbed.adjust = [](int, config::Config& config) { config.steering.repair_tails = true; };
  const auto result = RunFailover(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->flows_lost, 0);
  std::printf("stall per cut p50 %.1f, max %.1f ms\n", Quantile(result->CutStalls(), 0.5),
              Quantile(result->CutStalls(), 1));
  EXPECT_LT(Quantile(result->CutStalls(), 1), 3000) << "the timer ends after 4.3 s";
}

TEST_F(AgentOnFabric, ObserveModeSeesAndNeverActs) {
  TestbedSpec spec = SmallSpec();
  spec.mode = "observe";
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4; }));
  absl::SleepFor(absl::Seconds(1));
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop(Fault::Match::kAll)).ok());
  EXPECT_TRUE(Eventually([&] { return !testbed->Events(0, "move").empty(); }));
  for (const Mark& mark : testbed->Events(0, "move"))
    EXPECT_NE(mark.text.find("would move"), std::string::npos) << mark.text;
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u);
  for (const v1::Flow& flow : FlowsOf(0)) EXPECT_EQ(flow.udp_port(), flow.udp_port_native());
}

TEST_F(AgentOnFabric, OffPutsEveryFlowOnItsNativePortWithinASecond) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  absl::SleepFor(absl::Seconds(2));  // flows are new from now on, and assigned
  StartTraffic(8);
  ASSERT_TRUE(Eventually([&] { return testbed->CounterSum("flows_assigned") >= 8; }));
  ASSERT_TRUE(testbed->agent(0).Off({}).ok());
  const int64_t off_ns = MonotonicNs();
  absl::SleepFor(absl::Seconds(1));
  const Snapshot snapshot = emulator->TakeSnapshot();
  std::map<uint32_t, uint16_t> native;
  for (const FlowReport& flow : snapshot.flows) native[flow.destination_qpn] = flow.source_port;
  const auto flows = testbed->fabric().Flows();
  ASSERT_TRUE(flows.ok());
  int seen = 0;
  for (const FlowCounters& flow : *flows) {
    if (flow.probe || flow.source != testbed->fabric().HostAddr(0) || flow.last_ns < off_ns + 900'000'000) continue;
    EXPECT_EQ(flow.last_udp_sport, native[flow.dest_qpn]);
    ++seen;
  }
  EXPECT_GE(seen, 8);
}

TEST_F(AgentOnFabric, KillLosesNoFlowNoSteeringNoCounter) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  absl::SleepFor(absl::Seconds(2));
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4 && testbed->CounterSum("flows_assigned") >= 4; }));
  std::map<std::string, v1::Flow> before;
  for (const v1::Flow& flow : FlowsOf(0)) before[flow.id()] = flow;
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGKILL), 0);
  absl::SleepFor(absl::Seconds(1));
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4; }));
  for (const v1::Flow& flow : FlowsOf(0)) {
    const v1::Flow& was = before[flow.id()];
    EXPECT_EQ(flow.udp_port(), was.udp_port());
    EXPECT_EQ(flow.slot(), was.slot());
    EXPECT_GT(flow.packets(), was.packets());
  }
  const Snapshot snapshot = emulator->TakeSnapshot();
  for (const FlowReport& flow : snapshot.flows) {
    EXPECT_EQ(flow.requester.naks_received, 0u);
    EXPECT_FALSE(flow.dead);
  }
}

// The ports that the switches saw last, by destination QPN; of data of `host` since then.
std::map<uint32_t, uint16_t> PortsOnTheWire(Testbed& testbed, int host, int64_t since_ns) {
  std::map<uint32_t, uint16_t> ports;
  std::map<uint32_t, int64_t> newest;
  const absl::StatusOr<std::vector<FlowCounters>> flows = testbed.fabric().Flows();
  EXPECT_TRUE(flows.ok()) << flows.status();
  if (!flows.ok()) return ports;
  for (const FlowCounters& flow : *flows) {
    if (flow.probe || flow.source != testbed.fabric().HostAddr(host) || flow.last_ns < since_ns) continue;
    if (flow.last_ns < newest[flow.dest_qpn]) continue;
    newest[flow.dest_qpn] = flow.last_ns;
    ports[flow.dest_qpn] = flow.last_udp_sport;
  }
  return ports;
}

// No agent for longer than the lease: every flow goes home at a moment that keeps order, and none notices.
TEST_F(AgentOnFabric, WithoutAnAgentFlowsGoHomeWhenTheLeaseIsOver) {
  TestbedSpec spec = SmallSpec();
  spec.adjust = [](int, config::Config& config) { config.steering.lease = absl::Seconds(2); };
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  absl::SleepFor(absl::Seconds(2));
  StartTraffic(8);
  ASSERT_TRUE(Eventually([&] { return testbed->CounterSum("flows_assigned") >= 8; }));
  std::map<uint32_t, uint16_t> native;
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) native[flow.destination_qpn] = flow.source_port;
  const auto steered = [&] {
    int count = 0;
    for (const auto& [qpn, port] : PortsOnTheWire(*testbed, 0, MonotonicNs() - 200'000'000))
      count += native.contains(qpn) && native[qpn] != port ? 1 : 0;
    return count;
  };
  const int before = steered();
  EXPECT_GE(before, 4) << "a native port is seldom that of a slot";
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGKILL), 0);
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_EQ(steered(), before) << "the lease runs";
  ASSERT_TRUE(Eventually([&] { return steered() == 0; }));
  const std::vector<FlowReport> flows = emulator->TakeSnapshot().flows;
  uint64_t naks = 0;
  for (const FlowReport& flow : flows) {
    EXPECT_FALSE(flow.dead);
    naks += flow.requester.naks_received;
  }
  EXPECT_EQ(naks, 0u) << "a planned move keeps order";
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  EXPECT_TRUE(Eventually([&] {
    bool told = false;
    for (const Mark& mark : testbed->Events(0, "agent"))
      told |= mark.text.find("the lease of the agent before ran out") != std::string::npos;
    return told;
  }));
  EXPECT_GE(testbed->CounterSum("moves_lease"), 8u);
  const v1::StatusReply status = testbed->agent(0).Status().value_or(v1::StatusReply());
  EXPECT_GT(status.lease_found_over_s(), 0);
  EXPECT_GT(status.lease_left_s(), 0);
}

TEST_F(AgentOnFabric, WhatWasSetForAWhileEndsThoughTheAgentWasKilled) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  StartTraffic(3);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 3; }));
  const std::vector<v1::Flow> flows = FlowsOf(0);
  // One ends while no agent runs, one after the restart, one much later.
  v1::SteerSetRequest place;
  place.set_force(true);
  const std::map<std::string, double> for_s = {{flows[0].id(), 1}, {flows[1].id(), 7}, {flows[2].id(), 3600}};
  for (const auto& [flow, seconds] : for_s) {
    place.set_flow(flow);
    place.set_path(2);
    place.set_for_s(seconds);
    ASSERT_TRUE(testbed->agent(0).SteerSet(place).ok());
  }
  for (const v1::Flow& each : FlowsOf(0)) {
    EXPECT_TRUE(each.manual() || for_s.at(each.id()) == 1) << "seen at once";
  }
  v1::SetModeRequest mode;
  mode.set_mode(v1::MODE_OPTIMIZE);
  mode.set_for_s(7);
  ASSERT_TRUE(testbed->agent(0).SetMode(mode).ok());
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGKILL), 0);
  absl::SleepFor(absl::Seconds(2));
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  const auto flow = [&](const std::string& id) {
    for (const v1::Flow& each : FlowsOf(0)) {
      if (each.id() == id) return each;
    }
    v1::Flow none;  // not there yet: no answer to any of the questions below
    none.set_manual(true);
    return none;
  };
  EXPECT_TRUE(Eventually([&] { return !flow(flows[0].id()).manual(); })) << "overdue at the restart";
  EXPECT_GT(flow(flows[2].id()).reverts_s(), 3000);
  EXPECT_TRUE(Eventually([&] { return !flow(flows[1].id()).manual(); })) << "due after the restart";
  EXPECT_TRUE(Eventually([&] {
    const absl::StatusOr<v1::StatusReply> status = testbed->agent(0).Status();
    return status.ok() && status->mode() == v1::MODE_PROTECT;
  }));
  EXPECT_TRUE(flow(flows[2].id()).manual());
  EXPECT_EQ(flow(flows[2].id()).slot(), 2);
}

TEST_F(AgentOnFabric, FindsAHiddenClockOffsetAndDrift) {
  TestbedSpec spec = SmallSpec();
  spec.clocks = {{.offset_ns = 1'000'000'000, .drift_ppm = 50, .seed = 7}, {.offset_ns = 0, .drift_ppm = 0, .seed = 8}};
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  StartTraffic(2, /*stamp_every=*/16);
  absl::SleepFor(absl::Seconds(6));
  std::vector<double> true_us;
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) {
    for (const OneWayDelay& delay : flow.delays)
      true_us.push_back(static_cast<double>(delay.received_realtime_ns - delay.sent_realtime_ns) / 1e3);
  }
  ASSERT_FALSE(true_us.empty());
  for (const v1::Flow& flow : FlowsOf(0)) {
    // The kernel's stamps are taken inside ours: the difference is the stack's few microseconds.
    std::printf(
        "flow %s: OWD p50 %.1f p99 %.1f max %.1f us in %d samples; the kernel's own stamps say p50 %.1f p99 %.1f us\n",
        flow.id().c_str(), flow.owd().p50_ns() / 1e3, flow.owd().p99_ns() / 1e3, flow.owd().max_ns() / 1e3,
        static_cast<int>(flow.owd().samples()), Quantile(true_us, 0.5), Quantile(true_us, 0.99));
    EXPECT_GT(flow.owd().samples(), 100u);
    EXPECT_NEAR(flow.owd().p50_ns() / 1e3, Quantile(true_us, 0.5), 50) << "ten times the aim";
    EXPECT_LT(flow.owd().max_ns(), 100e6) << "a mismatched sample: PSNs repeat after seconds";
    EXPECT_GT(flow.owd().min_ns(), 0);
  }
  const auto clock0 = ReadHiddenClock(testbed->fabric(), 0);
  const auto clock1 = ReadHiddenClock(testbed->fabric(), 1);
  ASSERT_TRUE(clock0.ok() && clock1.ok());
  std::vector<double> errors_us;
  for (int i = 0; i < 100; ++i) {
    const int64_t before_ns = MonotonicNs();
    const v1::PathsReply reply = PathsOf(0);
    const int64_t true_ns = (before_ns + MonotonicNs()) / 2;
    ASSERT_EQ(reply.pairs_size(), 1);
    const v1::PeerClock& clock = reply.pairs(0).clock();
    ASSERT_NE(clock.state(), v1::PeerClock::STATE_UNKNOWN);
    const auto truth = static_cast<double>(HiddenClockError(*clock1, true_ns) - HiddenClockError(*clock0, true_ns));
    const double error_ns = std::abs(static_cast<double>(clock.offset_ns()) - truth);
    EXPECT_LT(error_ns, clock.bound_ns() + 1000) << "the bound excludes the truth";
    errors_us.push_back(error_ns / 1e3);
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_LT(Quantile(errors_us, 0.99), 50) << "ten times the aim";
  std::printf("clock error p50 %.2f us, p99 %.2f us\n", Quantile(errors_us, 0.5), Quantile(errors_us, 0.99));
  RecordProperty("clock_error_p99_us", absl::StrCat(Quantile(errors_us, 0.99)));
}

// The data packets of a pcap file (Ethernet, native byte order), from the IP header on.
std::vector<std::vector<uint8_t>> ReadPcap(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::vector<uint8_t>> packets;
  for (size_t at = 24; at + 16 <= bytes.size();) {
    uint32_t length;
    std::memcpy(&length, &bytes[at + 8], 4);
    at += 16;
    if (at + length > bytes.size() || length < 14) break;
    packets.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at) + 14,
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return packets;
}

TEST_F(AgentOnFabric, EverySteeredPacketAtASwitchHasARightIcrc) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  absl::SleepFor(absl::Seconds(2));
  StartTraffic(8);
  ASSERT_TRUE(Eventually([&] { return testbed->CounterSum("flows_assigned") >= 8; }));
  const std::string file = testbed->fabric().RunDir() + "/icrc.pcap";
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  const auto capture = testbed->fabric().StartCapture(LinkDirection::SpineToLeaf(spine, 1), file);
  ASSERT_TRUE(capture.ok()) << capture.status();
  absl::SleepFor(absl::Seconds(1));
  ASSERT_TRUE(testbed->fabric().StopCapture(*capture).ok());
  std::map<uint32_t, uint16_t> native;
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) native[flow.destination_qpn] = flow.source_port;
  int data = 0, rewritten = 0;
  for (const std::vector<uint8_t>& packet : ReadPcap(file)) {
    size_t length = 0;
    const auto parsed = ParsePacket(packet, &length);
    if (!parsed.has_value() || parsed->opcode >= 0xe0) continue;
    EXPECT_TRUE(IcrcIsRight(std::span(packet).first(length)));
    ++data;
    auto it = native.find(parsed->dest_qpn);
    if (it != native.end() && it->second != parsed->source_port) ++rewritten;
  }
  EXPECT_GT(data, 100);
  EXPECT_GT(rewritten, 10) << "no steered packet was captured";
}

TEST_F(AgentOnFabric, CollidingQueuePairsAreSpread) {
  ContentionSpec spec;
  spec.testbed.fabric = {.lab = "agenttest", .hosts_per_leaf = 2, .link_mbps = 200, .ecmp_seed = 1};
  spec.testbed.active_interval = absl::Milliseconds(5);
  spec.testbed.agent_binary = CWLAB_AGENTD_BINARY;
  spec.best_duration = absl::Seconds(6);
  spec.seed = 3;
  const auto result = RunContention(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->flows_lost, 0);
  EXPECT_EQ(result->icrc_errors, 0u);
  const auto most = [](const std::vector<int>& flows) { return *std::max_element(flows.begin(), flows.end()); };
  // Where the kernel takes the ECMP seed, this seed puts three of the four on one spine. Placed when they are new or
  // moved later, fewer of them stay together.
  EXPECT_LE(most(result->final_flows_per_spine), std::max(2, most(result->initial_flows_per_spine) - 1))
      << result->phase.name;
  std::printf("%s; slowest %.1f of %.1f Mbit/s\n", result->phase.name.c_str(), result->goodput_min_mbps,
              BestGoodputMbps(spec));
}

}  // namespace
}  // namespace cw::lab
