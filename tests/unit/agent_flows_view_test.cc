// SPDX-License-Identifier: Apache-2.0
//
// Flows in the words of the schema: those whose packets are seen, and queue pairs whose packets are not.
#include "userspace/agent/views/flows_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

class FlowsViewPart : public ::testing::Test {
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

  OnePair host_;
  rdma::QpRegistry qps_;
  DatagramQps datagrams_;
  ManualClock clock_{1000 * kSecond};
  UnseenFlows unseen_{
      host_.pairs, host_.nics,
      host_.flows, qps_,
      host_.mesh,  {.assigns = [] { return true; }, .fold = [](uint32_t, uint16_t) { return std::nullopt; }}};
  OwnerMover owners_{host_.pairs, host_.flows,  qps_,
                     unseen_,     host_.mesh,   host_.names,
                     clock_,      host_.events, {.allowed = [] { return Allowed(Mode::kProtect); }}};
  CauseBook causes_;
  Gaps gaps_{host_.flows, host_.pairs, host_.nics, host_.mesh, {}, causes_, host_.names, host_.events};
  LabelBook labels_;
  Deadlines deadlines_{"", "boot"};
  bool acts_ = true;
  FlowsView view_{host_.flows,
                  host_.pairs,
                  host_.nics,
                  qps_,
                  datagrams_,
                  owners_,
                  causes_,
                  gaps_,
                  labels_,
                  deadlines_,
                  host_.mesh,
                  host_.names,
                  clock_,
                  {.acts = [this] { return acts_; },
                   .at_ns = [](uint64_t jiffies) { return static_cast<int64_t>(jiffies) * kMs; }}};
};

TEST_F(FlowsViewPart, AFlowHasItsPathItsQueuePairAndItsOwner) {
  Register(7, 1007);
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.slot = 1;
  flow.tx.port = 50'001;
  flow.tx.native_slot = 0;
  flow.tx.flow.sport = 50'000;
  flow.tx.flow.last_seen_jiffies = 998'000;
  const v1::Flow out = view_.Of(host_.FlowTo(1007), flow);
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
  acts_ = false;
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.slot = 1;
  flow.tx.port = 50'001;
  flow.tx.native_slot = 0;
  flow.tx.flow.sport = 50'000;
  const v1::Flow out = view_.Of(host_.FlowTo(1007), flow);
  EXPECT_EQ(out.slot(), 0);
  EXPECT_EQ(out.udp_port(), 50'000u);
  v1::FlowCounts counts;
  view_.Count(counts);
  EXPECT_EQ(counts.transmitted(), 1u);
  EXPECT_EQ(counts.steered(), 0u);
}

TEST_F(FlowsViewPart, QueuePairsThatNobodySeesAreListedToo) {
  host_.AddSent(1007);
  Register(7, 1007);
  Register(8, 1008);
  const v1::QpsReply reply = view_.All({});
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

  std::vector<uplink::FlowSeen> seen = view_.Seen();
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

TEST_F(FlowsViewPart, OnlyWhatWasAskedForIsListed) {
  host_.AddSent(1007);
  host_.AddSent(1008);
  v1::QpsRequest request;
  request.set_flow(host_.FlowTo(1008).Id().ToString());
  EXPECT_EQ(view_.All(request).flows_size(), 1);
  request.clear_flow();
  request.set_remote("h2");
  EXPECT_EQ(view_.All(request).flows_size(), 2);
  request.set_remote("h3");
  EXPECT_EQ(view_.All(request).flows_size(), 0);
}

TEST_F(FlowsViewPart, ADatagramsOwnerIsTheKernelsWord) {
  datagrams_[{host_.local, 9}] = {.lqpn = 9, .pid = 6, .comm = "perf", .device = "mlx5_0"};
  FlowEntry& flow = host_.AddSent(1007);
  flow.tx.flow.transport = 3;
  flow.tx.flow.peer_qpn = 9;
  const v1::Flow out = view_.Of(host_.FlowTo(1007), flow);
  EXPECT_EQ(out.process(), "perf");
  EXPECT_EQ(out.nic(), "mlx5_0");
  EXPECT_EQ(out.local_qpn(), 9u);
}

}  // namespace
}  // namespace cw::agent
