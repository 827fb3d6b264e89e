// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::profile {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Op Send(int peer, double gpu_ms, double room_ms, double network_ms, std::vector<Qp> qps = {}) {
  Op op{.peer = peer, .channel = 1, .send = true, .qps = std::move(qps)};
  op.wait_ns[CW_WAIT_SEND_GPU] = gpu_ms * 1e6;
  op.wait_ns[CW_WAIT_SEND_PEER] = room_ms * 1e6;
  op.wait_ns[CW_WAIT_SEND] = network_ms * 1e6;
  return op;
}

Op Receive(int peer, double missing_ms, double taken_ms) {
  Op op{.peer = peer, .send = false};
  op.wait_ns[CW_WAIT_RECV] = missing_ms * 1e6;
  op.wait_ns[CW_WAIT_RECV_GPU] = taken_ms * 1e6;
  return op;
}

Verdict Of(std::vector<Op> ops) {
  Collective coll;
  coll.ops = std::move(ops);
  return Judge(coll);
}

TEST(Verdict, TheNetworkWithTheOperationAndQueuePairThatTookLongest) {
  const Verdict v = Of({Send(1, 1, 1, 5, {{.qpn = 0x10, .requests = 10, .wire_ns = 5e6}}),
                        Send(2, 1, 1, 50,
                             {{.qpn = 0x20, .requests = 10, .wire_ns = 1e6},
                              {.qpn = 0x21, .requests = 5, .wire_ns = 45e6},
                              {.qpn = 0x22, .requests = 100, .wire_ns = 46e6}}),
                        Receive(3, 40, 1)});
  EXPECT_EQ(v.held, Held::kNetwork);
  EXPECT_EQ(v.peer, 2);
  EXPECT_EQ(v.qpn, 0x21u) << "the longest for one request";
  EXPECT_THAT(Sentence(v, "; here"), HasSubstr("the network to rank 2, channel 1, queue pair 0x21; here: SendWait"));
}

TEST(Verdict, ARequestUnderWayCountsWithItsAge) {
  const Verdict v = Of(
      {Send(2, 1, 1, 50, {{.qpn = 0x20, .requests = 10, .wire_ns = 40e6}, {.qpn = 0x21, .open = 1, .open_ns = 9e9}})});
  EXPECT_EQ(v.qpn, 0x21u);
}

TEST(Verdict, WithoutQueuePairsItNamesPeerAndChannel) {
  const Verdict v = Of({Send(2, 1, 1, 50)});
  EXPECT_EQ(v.held, Held::kNetwork);
  EXPECT_EQ(v.qpn, 0u);
  EXPECT_THAT(Sentence(v, ""), Not(HasSubstr("queue pair")));
}

TEST(Verdict, AReceiverWithoutRoomIsNotOurNetwork) {
  const Verdict v = Of({Send(2, 1, 30, 5), Receive(3, 2, 1)});
  EXPECT_EQ(v.held, Held::kReceiver);
  EXPECT_EQ(v.peer, 2);
}

// A ring's GPU has nothing to send while nothing comes.
TEST(Verdict, WhoeverSentNothingOutranksTheGpu) {
  const Verdict v = Of({Send(2, 90, 1, 5), Receive(3, 60, 1)});
  EXPECT_EQ(v.held, Held::kSender);
  EXPECT_EQ(v.peer, 3);
}

TEST(Verdict, TheGpuWhereNothingIsMissing) {
  const Verdict late = Of({Send(2, 90, 1, 5), Receive(3, 1, 60)});
  EXPECT_EQ(late.held, Held::kGpu);
  EXPECT_THAT(Sentence(late, ""), HasSubstr("not the network"));
  EXPECT_EQ(Of({Receive(3, 1, 60)}).held, Held::kGpu);
}

TEST(Verdict, NothingWhereNothingWaited) {
  EXPECT_EQ(Of({}).held, Held::kNothing);
  EXPECT_EQ(Sentence(Of({Send(1, 0, 0, 0)}), ""), "");
}

}  // namespace
}  // namespace cw::profile
