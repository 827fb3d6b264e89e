// SPDX-License-Identifier: Apache-2.0
//
// Flows in the words of the schema: those whose packets are seen, and queue pairs whose packets are not; and what
// status makes of them and the rest.
#include "userspace/agent/views/flows_view.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/agent_views_rig.h"
#include "userspace/agent/views/status_view.h"

namespace cw::agent {
namespace {

class FlowsViewPart : public ViewsRig {
 protected:
  FlowsViewPart() { host_.AddPaths({50'000, 50'001}); }
  rdma::QpInfo Register(uint32_t lqpn, uint32_t rqpn) {
    const rdma::QpInfo qp{.lqpn = lqpn,
                          .rqpn = rqpn,
                          .laddr = host_.local,
                          .raddr = host_.remote,
                          .pid = 5,
                          .udp_sport = 50'001,
                          .comm = "train",
                          .source = "inproc",
                          .owner = rdma::OwnerSums{.messages = 3}};
    qps_.Register(qp);
    return qp;
  }
};

TEST_F(FlowsViewPart, AFlowHasItsPathItsQueuePairAndItsOwner) {
  Register(7, 1007);
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.slot = 1;
  flow.tx.port = 50'001;
  flow.tx.native_slot = 0;
  flow.tx.flow.sport = 50'000;
  flow.tx.flow.last_seen_jiffies = 998'000;
  const v1::Flow out = flows_view_.Of(host_.FlowTo(1007), flow);
  EXPECT_EQ(out.peer(), "h2");
  EXPECT_EQ(out.device(), "eth0");
  EXPECT_EQ(out.local_qpn(), 7u);
  EXPECT_EQ(out.process(), "train");
  EXPECT_EQ(out.slot(), 1);
  EXPECT_EQ(out.udp_port(), 50'001u);
  EXPECT_EQ(out.idle_s(), 2);
  EXPECT_TRUE(out.owner().packets_seen());
  EXPECT_EQ(out.owner().messages(), 3u);
  EXPECT_FALSE(out.owner().can_move());
}

TEST_F(FlowsViewPart, WhereNothingIsRewrittenAFlowIsWhereItsPacketsAre) {
  allowed_ = Allowed(Mode::kObserve);
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.slot = 1;
  flow.tx.port = 50'001;
  flow.tx.native_slot = 0;
  flow.tx.flow.sport = 50'000;
  const v1::Flow out = flows_view_.Of(host_.FlowTo(1007), flow);
  EXPECT_EQ(out.slot(), 0);
  EXPECT_EQ(out.udp_port(), 50'000u);
  v1::FlowCounts counts;
  flows_view_.Count(counts);
  EXPECT_EQ(counts.transmitted(), 1u);
  EXPECT_EQ(counts.steered(), 0u);
}

TEST_F(FlowsViewPart, QueuePairsThatNobodySeesAreListedToo) {
  host_.AddSent(1007);
  Register(7, 1007);
  Register(8, 1008);
  const v1::QpsReply reply = flows_view_.All({});
  ASSERT_EQ(reply.flows_size(), 2);
  EXPECT_EQ(reply.flows(1).local_qpn(), 8u);
  EXPECT_FALSE(reply.flows(1).owner().packets_seen());
  EXPECT_EQ(reply.flows(1).native_slot(), 1) << "the path that its port takes";
  EXPECT_EQ(reply.flows(1).idle_s(), 0);
}

TEST_F(FlowsViewPart, TheUplinkIsToldWhatFlowsSentAndByWhichPath) {
  Register(7, 1007);
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.slot = 1;
  flow.tx.port = 50'001;
  flow.tx.flow.sport = 50'000;
  flow.tx.flow.bytes = 9000;
  flow.tx.flow.req.duplicates = 4;
  flow.tx.flow.last_seen_jiffies = 998'000;
  FlowEntry& back = host_.flows.received[{.src = host_.remote, .dst = host_.local, .dqpn = 7}];
  back.received = true;
  back.tx.flow.ce = 5;
  back.tx.flow.cnp = 6;
  host_.pair().slot[1].forward.AddProbe(clock_.NowNs(), 4000);
  flow.AddDelay(clock_.NowNs(), 1, 9000);
  host_.AddSent(1008).tx.flow.last_seen_jiffies = 900'000;  // long ago
  Register(9, 1009);                                        // no packet of it is seen

  std::vector<uplink::FlowSeen> seen = flows_view_.Seen();
  ASSERT_EQ(seen.size(), 3u);
  std::sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.key.dqpn < b.key.dqpn; });
  EXPECT_TRUE(seen[0].active);
  EXPECT_EQ(seen[0].bytes, 9000u);
  EXPECT_EQ(seen[0].retransmits, 4u);
  EXPECT_EQ(seen[0].ce, 5u);
  EXPECT_EQ(seen[0].cnps, 6u);
  EXPECT_EQ(seen[0].qpn, 7u);
  EXPECT_EQ(seen[0].process, "train");
  EXPECT_EQ(seen[0].peer, "h2");
  EXPECT_EQ(seen[0].path_port, 50'001u);
  ASSERT_EQ(seen[0].queue.count(), 1u);
  EXPECT_NEAR(seen[0].queue.MeanNs(), 5000, 500) << "above the path's base";
  EXPECT_FALSE(seen[1].active);
  EXPECT_TRUE(seen[1].peer.empty());
  EXPECT_TRUE(seen[2].active);
  EXPECT_EQ(seen[2].path_port, 50'001u) << "the path that its port takes";
}

TEST_F(FlowsViewPart, AQueuePairOfACollectiveIsLocatedWithItsHops) {
  const rdma::QpInfo qp = Register(7, 1007);
  v1::CollectiveQp unseen;
  flows_view_.Locate(qp, unseen);
  EXPECT_EQ(unseen.nic(), "eth0");
  EXPECT_EQ(unseen.peer(), "h2");
  EXPECT_EQ(unseen.flow(), host_.FlowTo(1007).Id().ToString());
  EXPECT_EQ(unseen.hops_size(), 0) << "its packets were not seen";
  cw_tx_flow& tx = host_.AddSent(1007).tx;
  tx.slot = 1;
  tx.port = 50'001;
  hops_slot_ = 1;
  v1::CollectiveQp seen;
  flows_view_.Locate(qp, seen);
  EXPECT_EQ(seen.slot(), 1);
  EXPECT_THAT(seen.hops(), testing::ElementsAre("10.0.0.254", "*", host_.remote.ToString()));
}

TEST_F(FlowsViewPart, OnlyWhatWasAskedForIsListed) {
  host_.AddSent(1007);
  host_.AddSent(1008);
  v1::QpsRequest request;
  request.set_flow(host_.FlowTo(1008).Id().ToString());
  EXPECT_EQ(flows_view_.All(request).flows_size(), 1);
  request.clear_flow();
  request.set_remote("h2");
  EXPECT_EQ(flows_view_.All(request).flows_size(), 2);
  request.set_remote("h3");
  EXPECT_EQ(flows_view_.All(request).flows_size(), 0);
}

TEST_F(FlowsViewPart, ADatagramsOwnerIsTheKernelsWord) {
  datagrams_[{host_.local, 9}] = {.lqpn = 9, .pid = 6, .comm = "perf", .device = "mlx5_0"};
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.flow.transport = 3;
  flow.tx.flow.peer_qpn = 9;
  const v1::Flow out = flows_view_.Of(host_.FlowTo(1007), flow);
  EXPECT_EQ(out.process(), "perf");
  EXPECT_EQ(out.nic(), "mlx5_0");
  EXPECT_EQ(out.local_qpn(), 9u);
}

class StatusViewPart : public FlowsViewPart {
 protected:
  StatusViewPart() {
    modes_.Begin(Mode::kProtect, {}, false);
    vitals_.host_name = "h1";
    vitals_.started_ns = clock_.NowNs() - 5 * kSecond;
    host_.pair().table_seen = true;
  }

  config::Config config_;
  Vitals vitals_;
  cw_ctl ctl_{};
  MemoryFlows records_;
  Journal journal_{[](const telemetry::Event&) {}};
  Modes modes_{ctl_, deadlines_, clock_, journal_};
  Lease lease_{ctl_,
               {.at = [](int64_t ns) { return static_cast<uint64_t>(ns / kMs); },
                .ns = [](uint64_t jiffies) { return static_cast<int64_t>(jiffies) * kMs; }},
               clock_};
  Breaker breaker_{
      true,        absl::Minutes(1), host_.pairs,
      host_.flows, records_,         host_.names,
      clock_,      journal_,         {.allowed = [] { return Allowed(Mode::kProtect); }, .take_back = [] {}}};
  StatusView status_{
      "1.2",
      config_,
      vitals_,
      modes_,
      deadlines_,
      lease_,
      breaker_,
      host_.pairs,
      host_.nics,
      host_.flows,
      causes_,
      paths_view_,
      flows_view_,
      clock_,
      {.discovery = [this](uint32_t) { return &discovery_; },
       .silent = [](const PairKey&) { return true; },
       .carried = [](const PairKey&) { return false; },
       .do_not_leave = [](uint32_t) { return false; },
       .add_transport = [](const NicState&, v1::NicStatus& out) { out.set_transport("kernel"); },
       .add_others = [](v1::StatusReply&) {},
       .counters = [] { return absl::StatusOr<cw_counters>(cw_counters{.probe_ring_full = 3}); },
       .tell_counts = [](const CounterSink& add) { add("told", 4, "of a part"), add("none", 0, "of it"); },
       .no_qp_moments = [] { return "no RDMA device"; },
       .rooms = {.sent = 10, .received = 20, .pairs = 30}}};
};

TEST_F(StatusViewPart, AHostIsShownWithItsNicsPeersAndMaps) {
  host_.AddSent(1007);
  host_.pair().flows = 1;
  const v1::StatusReply reply = status_.Status();
  EXPECT_EQ(reply.version(), "1.2");
  EXPECT_EQ(reply.host_name(), "h1");
  EXPECT_DOUBLE_EQ(reply.uptime_s(), 5);
  EXPECT_EQ(reply.mode(), v1::MODE_PROTECT);
  EXPECT_EQ(reply.data_age_s(), -1) << "nothing was measured";
  ASSERT_EQ(reply.nics_size(), 1);
  EXPECT_EQ(reply.nics(0).pairs_silent(), 1u);
  EXPECT_EQ(reply.nics(0).pairs_carried(), 0u);
  EXPECT_EQ(reply.nics(0).transport(), "kernel");
  ASSERT_EQ(reply.peers_size(), 1);
  EXPECT_EQ(reply.peers(0).name(), "h2");
  EXPECT_EQ(reply.peers(0).flows(), 1u);
  EXPECT_EQ(reply.lost().probe_ring(), 3u);
  ASSERT_EQ(reply.maps_size(), 3);
  EXPECT_EQ(reply.maps(0).used(), 1u);
  EXPECT_EQ(reply.maps(0).capacity(), 10u);
}

TEST_F(StatusViewPart, CountsThatAreNoneAreLeftOut) {
  const v1::StatusReply reply = status_.Status();
  const auto counted = [&](const std::string& name) {
    return std::count_if(reply.counters().begin(), reply.counters().end(),
                         [&](const v1::Counter& counter) { return counter.name() == name; });
  };
  EXPECT_EQ(counted("told"), 1);
  EXPECT_EQ(counted("none"), 0);
}

TEST_F(StatusViewPart, WhyNothingMovesIsSaid) {
  EXPECT_TRUE(status_.Status().moves_frozen());
  EXPECT_EQ(status_.Status().frozen_reason(), "paths to h2 are being found again");
}

TEST_F(StatusViewPart, TheDoctorLooksAtWhatTheAgentHas) {
  const v1::DoctorReply reply = status_.Doctor();
  EXPECT_TRUE(std::any_of(reply.checks().begin(), reply.checks().end(), [](const v1::Check& check) {
    return check.seen().find("1.2, mode protect") != std::string::npos;
  })) << reply.DebugString();
}

}  // namespace
}  // namespace cw::agent
