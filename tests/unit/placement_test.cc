// SPDX-License-Identifier: Apache-2.0
// Labels and ports, the choice of a path, quotas of processes, and how the socket's server answers.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/time_units.h"
#include "userspace/inproc/cw_inproc.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/native_port.h"
#include "userspace/rdma/placement.h"
#include "userspace/rdma/process_quota.h"

namespace cw::rdma {
namespace {

TEST(Labels, PortsAreTheKernels) {
  // Worked by hand from rdma_flow_label_to_udp_sport: the lower 14 bits, with the upper 6 folded in.
  EXPECT_EQ(PortOfLabel(1), 0xc001);
  EXPECT_EQ(PortOfLabel(0x3fff), 0xffff);
  EXPECT_EQ(PortOfLabel(0x4000), 0xc001);
  EXPECT_EQ(PortOfLabel(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
}

// Values of the kernel's rdma_calc_flow_label, worked out by hand: v = lqpn × rqpn; v ^= v >> 20; v ^= v >> 40.
TEST(Labels, OfTwoQpnsIsTheSameFromBothEnds) {
  EXPECT_EQ(LabelOfQpns(0x11, 0x12), 0x132u);
  EXPECT_EQ(LabelOfQpns(0x400, 0x400), 0x1u) << "2^20, folded";
  EXPECT_EQ(LabelOfQpns(0xffffff, 0xffffff), 0xfff1eu);
  for (const uint32_t a : {0x11u, 0x1a2bu, 0xbc4a8u, 0xffffffu}) {
    for (const uint32_t b : {0x12u, 0x400u, 0x1b668eu}) EXPECT_EQ(LabelOfQpns(a, b), LabelOfQpns(b, a));
  }
}

TEST(Labels, OfRdmaCmIsMadeOfItsPorts) {
  EXPECT_EQ(LabelOfCmPorts(1, 0), 31u);
  EXPECT_EQ(LabelOfCmPorts(40000, 18515), (40000u * 31 + 18515) & 0xfffffu);
}

TEST(NativePorts, OwnerThenLabelThenQpns) {
  QpInfo qp{.lqpn = 0x11, .rqpn = 0x12, .source = "nldev"};
  EXPECT_EQ(NativePortOf(qp, "mlx5_core").port, 0xc132);
  EXPECT_EQ(NativePortOf(qp, "mlx5_core").from, PortFrom::kQpns);
  EXPECT_EQ(NativePortOf(qp, "bnxt_en").port, 0) << "how that driver makes its port is not known";
  EXPECT_EQ(NativePortOf(qp, "").from, PortFrom::kUnknown);
  qp.label_known = true;
  EXPECT_EQ(NativePortOf(qp, "ice").from, PortFrom::kQpns) << "label 0 is none";
  qp.flow_label = 5;
  EXPECT_EQ(NativePortOf(qp, "ice").port, 0xc005);
  EXPECT_EQ(NativePortOf(qp, "ice").from, PortFrom::kLabel);
  qp.source = "inproc";
  qp.udp_sport = 50000;
  EXPECT_EQ(NativePortOf(qp, "bnxt_en").port, 50000);
  EXPECT_EQ(NativePortOf(qp, "").from, PortFrom::kOwner);
  EXPECT_STREQ(QpStateName(3), "RTS");
  EXPECT_STREQ(QpStateName(0), "");
  EXPECT_STREQ(QpStateName(77), "");
}

TEST(Labels, EachPortOfLabelsHasOne) {
  for (uint32_t port = 0; port <= 0xffff; ++port) {
    const std::optional<uint32_t> label = LabelOfPort(static_cast<uint16_t>(port));
    ASSERT_EQ(label.has_value(), port >= 0xc000) << port;
    if (!label) continue;
    EXPECT_EQ(PortOfLabel(*label), port);
    EXPECT_NE(*label, 0u) << port;
    EXPECT_LE(*label, 0xfffffu);
  }
}

TEST(LeastLoadedPath, TakesTheEmptiestInTurn) {
  const PathLoad paths[] = {{0, 50000, 2}, {1, 50001, 1}, {2, 50002, 1}, {3, 50003, 3}};
  EXPECT_EQ(LeastLoaded(paths, 0)->slot, 1);
  EXPECT_EQ(LeastLoaded(paths, 2)->slot, 2);
  EXPECT_EQ(LeastLoaded(paths, 7)->slot, 1);  // 3, 0, 1: the first of the emptiest behind it
  EXPECT_EQ(LeastLoaded({}, 5), nullptr);
}

TEST(LeastLoadedPath, TakesNoPortThatNoLabelGives) {
  const PathLoad paths[] = {{0, 1000, 0}, {1, 50001, 9}};
  EXPECT_EQ(LeastLoaded(paths, 0)->slot, 1);
  EXPECT_EQ(LeastLoaded(absl::MakeConstSpan(paths, 1), 0), nullptr);
}

TEST(Quota, StoresTwoSecondsOfMessages) {
  ProcessQuota quota({.max_qps = 2, .messages_per_second = 10});
  quota.Connected(7, 1000, 0);
  int taken = 0;
  while (quota.TakeMessage(7, 0)) ++taken;
  EXPECT_EQ(taken, 20);
  EXPECT_FALSE(quota.TakeMessage(7, kSecond / 20));
  EXPECT_TRUE(quota.TakeMessage(7, kSecond / 5));
  EXPECT_FALSE(quota.TakeMessage(8, 0)) << "a process that is not connected";
}

TEST(Quota, IsTheProcessesNotTheConnections) {
  ProcessQuota quota({.max_qps = 2, .messages_per_second = 10});
  quota.Connected(7, 1000, 0);
  quota.Connected(7, 1000, 0);
  EXPECT_TRUE(quota.TakeQp(7));
  EXPECT_TRUE(quota.TakeQp(7));
  EXPECT_FALSE(quota.TakeQp(7));
  quota.Disconnected(7);
  EXPECT_FALSE(quota.TakeQp(7));
  quota.ReturnQp(7);
  EXPECT_TRUE(quota.TakeQp(7));
  quota.Connected(8, 1000, 0);
  EXPECT_TRUE(quota.TakeQp(8)) << "another process has its own";
}

TEST(Quota, MoreProcessesAreNoWayRoundTheUsers) {
  ProcessQuota quota({.max_qps = 2, .messages_per_second = 10, .user_connections = 3, .user_qps = 3});
  EXPECT_TRUE(quota.Connected(7, 1000, 0));
  EXPECT_TRUE(quota.Connected(8, 1000, 0));
  EXPECT_TRUE(quota.Connected(9, 1000, 0));
  EXPECT_FALSE(quota.Connected(10, 1000, 0));
  EXPECT_FALSE(quota.Connected(7, 1000, 0)) << "nor another one of a process that is known";
  EXPECT_TRUE(quota.Connected(11, 1001, 0)) << "another user";
  for (const uint32_t pid : {7, 7, 8}) EXPECT_TRUE(quota.TakeQp(pid));
  EXPECT_FALSE(quota.TakeQp(8));
  EXPECT_TRUE(quota.TakeQp(11));
  quota.ReturnQp(7);
  EXPECT_TRUE(quota.TakeQp(9)) << "what one gave back another may take";
  quota.Disconnected(8);
  EXPECT_TRUE(quota.Connected(10, 1000, 0));
  for (uint32_t pid = 20; pid < 30; ++pid) EXPECT_TRUE(quota.Connected(pid, 0, 0)) << "root";
}

class PlacingServer : public ::testing::Test {
 protected:
  void Listen(const QuotaLimits& limits) {
    char directory[] = "/tmp/cw_place_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    auto server = InprocServer::Listen(directory_ + "/s",
                                       {.registered = [this](const QpInfo& qp) { told_.push_back(qp); },
                                        .unregistered = [](const QpInfo&) {},
                                        .place =
                                            [](const QpInfo& qp, const Requester&) {
                                              return Placement{CW_INPROC_PLACED, qp.lqpn, PortOfLabel(qp.lqpn), 4};
                                            }},
                                       limits);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/s").c_str());
    ASSERT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    server_->Poll();
  }
  void TearDown() override {
    if (fd_ >= 0) close(fd_);
    server_.reset();
    rmdir(directory_.c_str());
  }
  cw_inproc_placement Ask(uint32_t lqpn) {
    cw_inproc_place_qp question{};
    question.qp = {.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_PLACE_QP, .lqpn = lqpn};
    question.request = 1000 + lqpn;
    EXPECT_EQ(send(fd_, &question, sizeof(question), 0), static_cast<ssize_t>(sizeof(question)));
    server_->Poll();
    cw_inproc_placement answer{};
    if (recv(fd_, &answer, sizeof(answer), MSG_DONTWAIT) != static_cast<ssize_t>(sizeof(answer))) answer.request = 0;
    return answer;
  }
  std::string directory_;
  std::unique_ptr<InprocServer> server_;
  int fd_ = -1;
  std::vector<QpInfo> told_;
};

TEST_F(PlacingServer, AnswersAndCountsThePlaceAtOnce) {
  Listen({});
  const cw_inproc_placement answer = Ask(5);
  EXPECT_EQ(answer.request, 1005u);
  EXPECT_EQ(answer.flow_label, 5u);
  EXPECT_EQ(answer.slot, 4);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].udp_sport, PortOfLabel(5)) << "the next question has to see it";
}

TEST_F(PlacingServer, SumsKeepTheirQueuePair) {
  Listen({});
  Ask(5);
  cw_inproc_qp_sums sums{.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_QP_SUMS, .lqpn = 5};
  sums.messages = 77;
  ASSERT_GT(send(fd_, &sums, sizeof(sums), 0), 0);
  sums.lqpn = 6;  // of nobody's
  ASSERT_GT(send(fd_, &sums, sizeof(sums), 0), 0);
  server_->Poll();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].owner->messages, 77u);
  EXPECT_EQ(told_[1].owner->asked, CW_INPROC_PLACED);
  EXPECT_GT(told_[1].owner->told_ns, 0);
}

TEST_F(PlacingServer, RefusesQueuePairsOverTheQuota) {
  Listen({.max_qps = 2});
  EXPECT_EQ(Ask(1).verdict, CW_INPROC_PLACED);
  EXPECT_EQ(Ask(2).verdict, CW_INPROC_PLACED);
  EXPECT_EQ(Ask(3).verdict, CW_INPROC_OVER_QUOTA);
  EXPECT_EQ(Ask(2).verdict, CW_INPROC_PLACED) << "known already";
  EXPECT_EQ(server_->counts().over_quota, 1u);
}

TEST_F(PlacingServer, DoesNotReadMessagesOverTheQuota) {
  Listen({.messages_per_second = 0.5});
  EXPECT_EQ(Ask(1).request, 1001u);
  EXPECT_EQ(Ask(2).request, 0u) << "no answer";
  EXPECT_EQ(server_->counts().over_quota, 1u);
}

}  // namespace
}  // namespace cw::rdma
