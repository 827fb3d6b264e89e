// SPDX-License-Identifier: Apache-2.0
// The product on the lab's fabric: real programs, real agents, real packets, checked against what the switches saw.
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
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_contention.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {
namespace {

using bench::Quantile;

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
    ASSERT_TRUE(KillAgent(*testbed, 0).ok());
    ASSERT_TRUE(testbed->StartAgent(0).ok());
    EXPECT_TRUE(Eventually([&] { return hashing() == expected; })) << "got " << hashing() << " for " << expected;
    const bool moves = expected == v1::FABRIC_HASHING_SINGLE;
    EXPECT_EQ(check("fabric hashing").result(), moves ? v1::Check::RESULT_OK : v1::Check::RESULT_WARN);
    EXPECT_EQ(testbed->agent(0).Status().value_or(v1::StatusReply()).moves_frozen(), !moves);
  }
}

// The lab's clock cannot be set back, so what peers have seen of the host is ahead of it.
TEST_F(AgentOnFabric, ARebootWithAClockThatIsBehindIsNoReplay) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  const std::string file = DescribeAgentHost(testbed->fabric(), 0).run_dir + "/state/session";
  ASSERT_TRUE(testbed->LoseAgent(0).ok());
  std::ofstream(file) << absl::ToUnixSeconds(absl::Now()) + 1'000'000 << '\n';
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  ASSERT_TRUE(testbed->WaitPathsUp(absl::Seconds(30)).ok());
  ASSERT_TRUE(testbed->LoseAgent(0).ok());
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
  EXPECT_TRUE(up.ok()) << up;
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

TEST_F(AgentOnFabric, ObserveModeSeesAndNeverActs) {
  TestbedSpec spec = SmallSpec();
  spec.mode = "observe";
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return PathsKnown(4); }));
  int spine = -1;
  ASSERT_TRUE(Eventually([&] { return (spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0)) >= 0; }));
  ASSERT_TRUE(testbed->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop(Fault::Match::kAll)).ok());
  EXPECT_TRUE(Eventually([&] { return !testbed->Events(0, "move").empty(); }));
  for (const Mark& mark : testbed->Events(0, "move"))
    EXPECT_NE(mark.text.find("would move"), std::string::npos) << mark.text;
  EXPECT_EQ(testbed->CounterSum("moves_dead"), 0u);
  for (const v1::Flow& flow : FlowsOf(0)) EXPECT_EQ(flow.udp_port(), flow.udp_port_native());
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

TEST_F(AgentOnFabric, OffPutsEveryFlowOnItsNativePortWithinASecond) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  StartTraffic(8);
  ASSERT_TRUE(Eventually([&] { return testbed->CounterSum("flows_assigned") >= 8; }));
  ASSERT_TRUE(testbed->agent(0).Off({}).ok());
  std::map<uint32_t, uint16_t> native;
  for (const FlowReport& flow : emulator->TakeSnapshot().flows) native[flow.destination_qpn] = flow.source_port;
  // The newest port of each flow, of packets that the switches saw lately.
  EXPECT_TRUE(
      Eventually([&] { return PortsOnTheWire(*testbed, 0, MonotonicNs() - 50'000'000) == native; }, absl::Seconds(1)));
  ASSERT_TRUE(EachFlowDelivers(*emulator));
  EXPECT_EQ(PortsOnTheWire(*testbed, 0, MonotonicNs() - 200'000'000), native) << "and it stays there";
}

TEST_F(AgentOnFabric, KillLosesNoFlowNoSteeringNoCounter) {
  Up(SmallSpec());
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  StartTraffic(4);
  ASSERT_TRUE(Eventually([&] { return QpsOf(0).flows_size() == 4 && testbed->CounterSum("flows_assigned") >= 4; }));
  std::map<std::string, v1::Flow> before;
  for (const v1::Flow& flow : FlowsOf(0)) before[flow.id()] = flow;
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  ASSERT_TRUE(EachFlowDelivers(*emulator)) << "without an agent";
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
  if (HasFailure()) {
    for (const char* type : {"path", "move"}) {
      for (const Mark& mark : testbed->Events(testbed->origin_ns(), type))
        std::printf("%.3f s: %s\n", mark.at_s, mark.text.c_str());
    }
    std::printf("moved off dead paths %d, blindly %d\n", static_cast<int>(testbed->CounterSum("moves_dead")),
                static_cast<int>(testbed->CounterSum("moves_blind")));
  }
}

// No agent for longer than the lease: every flow goes home at a moment that keeps order, and none notices.
TEST_F(AgentOnFabric, WithoutAnAgentFlowsGoHomeWhenTheLeaseIsOver) {
  TestbedSpec spec = SmallSpec();
  spec.adjust = [](int, config::Config& config) { config.steering.lease = absl::Seconds(2); };
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
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
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  ASSERT_TRUE(EachFlowDelivers(*emulator));
  EXPECT_EQ(steered(), before) << "the lease runs";
  ASSERT_TRUE(Eventually([&] { return steered() == 0; })) << steered() << " of " << before << " are not at home";
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
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  Hold(absl::Milliseconds(1200));  // beyond the second of the first one
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
  EXPECT_TRUE(Eventually([&] { return flow(flows[2].id()).slot() == 2; })) << flow(flows[2].id()).ShortDebugString();
}

TEST_F(AgentOnFabric, FindsAHiddenClockOffsetAndDrift) {
  TestbedSpec spec = SmallSpec();
  spec.clocks = {{.offset_ns = 1'000'000'000, .drift_ppm = 50, .seed = 7}, {.offset_ns = 0, .drift_ppm = 0, .seed = 8}};
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  StartTraffic(2, /*stamp_every=*/16);
  // Samples of before the clock was known are in the delays, too: until they are a few among many.
  ASSERT_TRUE(Eventually([&] {
    const v1::PathsReply reply = PathsOf(0);
    return reply.pairs_size() == 1 && reply.pairs(0).clock().state() == v1::PeerClock::STATE_SYNCED &&
           reply.pairs(0).clock().error_est_ns() < 20'000;
  }));
  const auto samples = [&] {
    const auto flows = FlowsOf(0);  // asked once: more may be known a moment later
    if (flows.size() != 2) return uint64_t{0};
    return std::min(flows[0].owd().samples(), flows[1].owd().samples());
  };
  const uint64_t before_samples = samples();
  ASSERT_TRUE(Eventually([&] { return samples() > 3 * before_samples + 200; }));
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
  ASSERT_TRUE(FlowsAreNewFromNowOn(*testbed));
  StartTraffic(8);
  ASSERT_TRUE(Eventually([&] { return testbed->CounterSum("flows_assigned") >= 8; }));
  const std::string file = testbed->fabric().RunDir() + "/icrc.pcap";
  const int spine = testbed->SpineOf(emulator->TakeSnapshot().flows[0], 0);
  ASSERT_GE(spine, 0);
  const auto capture = testbed->fabric().StartCapture(LinkDirection::SpineToLeaf(spine, 1), file);
  ASSERT_TRUE(capture.ok()) << capture.status();
  const auto crossed = [&] {
    uint64_t packets = 0;
    const auto flows = testbed->fabric().Flows();
    for (const FlowCounters& flow : flows.value_or(std::vector<FlowCounters>()))
      packets += !flow.probe && flow.link == LinkDirection::SpineToLeaf(spine, 1) ? flow.packets : 0;
    return packets;
  };
  const uint64_t at_first = crossed();
  ASSERT_TRUE(Eventually([&] { return crossed() > at_first + 2000; }));
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
