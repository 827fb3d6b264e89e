// SPDX-License-Identifier: Apache-2.0
//
// What is read of flows and queue pairs, and what leaves the tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/qp_moments.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// What a kernel lists, as the test sets it.
struct ListedQps {
  std::vector<rdma::Link> links;
  std::vector<rdma::Qp> qps;
  std::vector<rdma::CmId> ids;
  bool broken = false;
  int opened = 0;
};

class FakeLists final : public rdma::QpLists {
 public:
  explicit FakeLists(const ListedQps& listed) : listed_(listed) {}
  absl::StatusOr<std::vector<rdma::Link>> Links() override { return listed_.links; }
  absl::StatusOr<std::vector<rdma::Qp>> Qps() override {
    if (listed_.broken) return absl::UnavailableError("broken");
    return listed_.qps;
  }
  absl::StatusOr<std::vector<rdma::CmId>> CmIds() override { return listed_.ids; }
  absl::StatusOr<rdma::Qp> FindQp(const rdma::Link&, uint32_t lqpn) override {
    for (const rdma::Qp& qp : listed_.qps) {
      if (qp.lqpn == lqpn) return qp;
    }
    return absl::NotFoundError("");
  }

 private:
  const ListedQps& listed_;
};

class FlowTables : public ::testing::Test {
 protected:
  static constexpr uint16_t kNative = 51'000;

  FlowTables() {
    host_.AddPaths({50'000, 50'001});
    host_.pair().table_seen = true;
    listed_.links = {{.device = "mlx5_0", .device_index = 3, .ifindex = OnePair::kIfindex}};
  }
  // A flow on its own port, which has sent so much.
  FlowKey AddNative(uint32_t qpn, uint64_t packets = 0) {
    return host_.AddFlow(records_, qpn, CW_SLOT_NONE, [&](cw_tx_flow& record) {
      record.port = 0;
      record.flow.sport = kNative;
      record.flow.packets = packets;
      record.flow.bytes = packets * 1000;
    });
  }
  void Send(const FlowKey& key, uint64_t packets) {
    records_.sent[key].flow.packets += packets;
    records_.sent[key].flow.bytes += packets * 1000;
  }
  void Read() {
    reader_.ReadSent(clock_.NowNs());
    clock_.Advance(kSecond);
  }
  rdma::Qp Connected(uint32_t lqpn) const {
    return {.device_index = 3,
            .lqpn = lqpn,
            .rqpn = lqpn + 1000,
            .type = rdma::kQpTypeRc,
            .state = rdma::kQpStateRts,
            .pid = 5,
            .comm = "trainer"};
  }

  OnePair host_;
  MemoryFlows records_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  ListedQps listed_;
  cw_ctl ctl_{};
  std::vector<uint16_t> watched_, released_;
  std::vector<std::pair<uint32_t, bool>> active_;
  std::vector<uint8_t> classes_;
  bool follows_ = true;
  UnseenFlows unseen_{host_.pairs,
                      host_.nics,
                      host_.flows,
                      qps_,
                      host_.mesh,
                      {.assigns = [] { return false; },
                       .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                       .watch = [](uint32_t, uint16_t) { return uint8_t{CW_SLOT_NONE}; },
                       .release = [](uint32_t, uint16_t, const FlowKey&) {}}};
  OwnerMover owners_{host_.pairs,
                     host_.flows,
                     qps_,
                     unseen_,
                     host_.mesh,
                     host_.names,
                     clock_,
                     host_.events,
                     {.allowed = [] { return Allowed(Mode::kProtect); },
                      .send = [](const std::vector<rdma::MoveOrder>&) { return std::vector<uint32_t>(); },
                      .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                      .left = [](const FlowKey&, uint32_t, control::ReturnPlace, control::ReturnPlace) {}}};
  NativePorts natives_{host_.flows,
                       records_,
                       unseen_,
                       {.watch =
                            [this](uint32_t, uint16_t port, uint32_t) {
                              watched_.push_back(port);
                              return uint8_t{9};
                            },
                        .release = [this](uint32_t, uint16_t port) { released_.push_back(port); }}};
  Totals totals_{host_.nics, host_.names, host_.pairs, host_.mesh, host_.store};
  FlowReader reader_{host_.flows,
                     records_,
                     host_.pairs,
                     qps_,
                     host_.mesh,
                     natives_,
                     totals_,
                     host_.names,
                     clock_,
                     host_.events,
                     {.set_active = [this](uint32_t pair, bool active) { active_.emplace_back(pair, active); },
                      .set_class = [this](uint32_t, uint8_t dscp) { classes_.push_back(dscp); },
                      .follows_classes = [this] { return follows_; },
                      .loss_limit = [] { return 0.01; }}};
  // A jiffy is a millisecond here.
  FlowEnds ends_{
      host_.flows, records_,    host_.pairs, qps_,
      unseen_,     natives_,    ctl_,        [](int64_t ns) { return static_cast<uint64_t>(ns / 1'000'000); },
      clock_,      host_.events};
  KernelQps listed_qps_{host_.nics, qps_, owners_, ends_, [this] {
                          ++listed_.opened;
                          return absl::StatusOr<std::unique_ptr<rdma::QpLists>>(std::make_unique<FakeLists>(listed_));
                        }};
  QpMoments moments_{host_.nics, qps_, listed_qps_, owners_, ends_, host_.names, clock_, host_.events};
};

TEST_F(FlowTables, AWindowsBytesAreThoseSinceTheReadingBefore) {
  const FlowKey key = AddNative(7, 100);
  host_.flows.sent.clear();
  Read();
  EXPECT_EQ(host_.flows.sent[key].window_bytes, 0u) << "what was before is nobody's window";
  Send(key, 50);
  Read();
  EXPECT_EQ(host_.flows.sent[key].window_packets, 50u);
  EXPECT_EQ(host_.flows.sent[key].window_bytes, 50'000u);
  records_.sent.clear();
  Read();
  EXPECT_THAT(host_.flows.sent, IsEmpty());
}

TEST_F(FlowTables, APairCarriesDataUntilASecondAfterItsLastPacket) {
  const FlowKey key = AddNative(7);
  Read();
  EXPECT_THAT(active_, IsEmpty());
  Send(key, 1);
  Read();
  EXPECT_THAT(active_, ElementsAre(Pair(host_.index, true)));
  EXPECT_NE(host_.pair().loss, nullptr);
  Read();
  EXPECT_THAT(active_, ElementsAre(Pair(host_.index, true), Pair(host_.index, false)));
}

TEST_F(FlowTables, AFlowsOwnPortGetsASlotOnce) {
  const FlowKey key = AddNative(7);
  Read();
  Read();
  EXPECT_THAT(watched_, ElementsAre(kNative));
  EXPECT_EQ(records_.sent[key].native_slot, 9);
  natives_.OnNative(host_.index, {.port = kNative, .slot = 1});
  EXPECT_EQ(records_.sent[key].native_slot, 1);
}

TEST_F(FlowTables, APortIsReleasedWhenNobodyHasIt) {
  const FlowKey one = AddNative(7), other = AddNative(8);
  natives_.Release(host_.index, kNative, one);
  EXPECT_THAT(released_, IsEmpty()) << "the other one has it";
  host_.flows.sent.erase(other);
  natives_.Release(host_.index, kNative, one);
  EXPECT_THAT(released_, ElementsAre(kNative));
}

TEST_F(FlowTables, FlowsOfABlindPairKeepTheirOwnPorts) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  const FlowKey by_hand = host_.AddFlow(records_, 8, 1, [](cw_tx_flow& record) { record.flags = CW_STEER_MANUAL; });
  host_.pair().blind = true;
  natives_.OnBlind(host_.pair());
  EXPECT_EQ(records_.sent[key].port, 0);
  EXPECT_EQ(records_.sent[by_hand].port, 50'001) << "an operator's choice";
}

TEST_F(FlowTables, AFlowOnAPortThatIsNobodysPathGoesHome) {
  const FlowKey stale = host_.AddFlow(records_, 7, 1, [](cw_tx_flow& record) { record.port = 50'900; });
  const FlowKey good = host_.AddFlow(records_, 8, 1);
  Read();
  EXPECT_EQ(records_.sent[stale].port, 0);
  EXPECT_EQ(records_.sent[good].port, 50'001);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("back on its native port"));
}

TEST_F(FlowTables, ProbesRideInTheClassOfTheFlows) {
  const FlowKey key = AddNative(7);
  records_.sent[key].flow.tos = 26 << 2;
  follows_ = false;
  for (int i = 0; i < 5; ++i, Send(key, 1000)) Read();
  EXPECT_THAT(classes_, IsEmpty()) << "one is configured";
  follows_ = true;
  for (int i = 0; i < 5; ++i, Send(key, 1000)) Read();
  EXPECT_THAT(classes_, ElementsAre(26));
}

TEST_F(FlowTables, AcknowledgementsAreLinkedToTheirFlow) {
  const FlowKey key = AddNative(1007);
  qps_.Register({.lqpn = 7, .rqpn = 1007, .laddr = host_.local, .raddr = host_.remote, .source = "nldev"});
  const FlowKey received{.src = host_.remote, .dst = host_.local, .dqpn = 7};
  records_.received[received] = {.cnp = 3, .acks = 40};
  Read();
  Send(key, 1);
  Read();
  EXPECT_EQ(records_.received[received].peer_qpn, 1007u);
  EXPECT_EQ(host_.flows.sent[key].answers.acks, 40u);
  records_.received[received].cnp = 5;
  Send(key, 1);
  Read();
  EXPECT_EQ(host_.flows.sent[key].window_cnps, 2u);
}

TEST_F(FlowTables, ReceivedFlowsCompleteQueuePairs) {
  qps_.Register({.lqpn = 7, .rqpn = 1007, .laddr = host_.local, .source = "nldev"});
  const FlowKey received{.src = host_.remote, .dst = host_.local, .dqpn = 7};
  records_.received[received] = {.packets = 1};
  reader_.ReadReceived();
  ASSERT_TRUE(host_.flows.received.contains(received));
  EXPECT_TRUE(qps_.BySentFlow(host_.FlowTo(1007)).has_value());
}

TEST_F(FlowTables, FlowsThatWereIdleForLongAreForgotten) {
  const FlowKey key = AddNative(7);
  const FlowKey locked = AddNative(8);
  records_.sent[locked].flags = CW_STEER_LOCKED;
  Read();
  ends_.ForgetIdle();
  EXPECT_THAT(records_.sent, SizeIs(1)) << "last seen at jiffy 0, and only the free one";
  EXPECT_TRUE(records_.sent.contains(locked));
  EXPECT_FALSE(host_.flows.sent.contains(key));
  EXPECT_THAT(released_, IsEmpty()) << "the locked one has the port";
}

TEST_F(FlowTables, AFlowThatHasJustGoneOnStays) {
  const FlowKey key = AddNative(7, 10);
  Send(key, 1);  // since it was read
  ends_.ForgetIdle();
  EXPECT_TRUE(records_.sent.contains(key));
}

TEST_F(FlowTables, AFullTableIsToldOnceAndOpenedWhenThereIsRoom) {
  records_.room = 10;
  for (uint32_t qpn = 1; qpn <= 10; ++qpn) AddNative(qpn);
  for (auto& [key, flow] : host_.flows.sent) flow.tx.flow.last_seen_jiffies = static_cast<uint64_t>(clock_.NowNs());
  ctl_.steer_full = 1;
  ends_.ReopenTable();
  ends_.ReopenTable();
  EXPECT_THAT(host_.events.Take(), SizeIs(1));
  EXPECT_EQ(ctl_.steer_full, 1u);
  host_.flows.sent.erase(host_.FlowTo(1));
  host_.flows.sent.erase(host_.FlowTo(2));
  ends_.ReopenTable();
  EXPECT_EQ(ctl_.steer_full, 0u);
}

TEST_F(FlowTables, FlowsOfAPairThatIsGoneAreForgotten) {
  AddNative(7);
  ends_.ForgetPair(host_.index + 1);
  EXPECT_THAT(records_.sent, SizeIs(1));
  ends_.ForgetPair(host_.index);
  EXPECT_THAT(records_.sent, IsEmpty());
  EXPECT_THAT(host_.flows.sent, IsEmpty());
}

TEST_F(FlowTables, AFlowWhoseQueuePairTwoListsLackHasEnded) {
  AddNative(1007);
  listed_.qps = {Connected(7)};
  listed_.ids = {{.device_index = 3, .lqpn = 7, .local = host_.local, .remote = host_.remote}};
  for (int i = 0; i < 3; ++i) listed_qps_.Read();
  EXPECT_THAT(records_.sent, SizeIs(1));
  listed_.qps.clear();
  for (int i = 0; i < 3; ++i) listed_qps_.Read();
  EXPECT_THAT(records_.sent, IsEmpty());
}

TEST_F(FlowTables, TheListNamesDevicesAndConnectionsThePeer) {
  listed_.qps = {Connected(7), {.device_index = 3, .lqpn = 9, .type = rdma::kQpTypeUd}};
  listed_.ids = {{.device_index = 3, .lqpn = 7, .local = host_.local, .remote = host_.remote, .flowinfo = 0x123}};
  listed_qps_.Read();
  EXPECT_THAT(host_.nics[0].rdma_devices, ElementsAre("mlx5_0"));
  EXPECT_TRUE(listed_qps_.datagrams().contains({host_.local, 9}));
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(host_.FlowTo(1007));
  ASSERT_TRUE(qp.has_value());
  EXPECT_EQ(qp->flow_label, 0x123u);
  EXPECT_EQ(qp->comm, "trainer");
}

TEST_F(FlowTables, ABrokenAnswerIsNotTakenForTheNextOne) {
  listed_.broken = true;
  listed_qps_.Read();
  listed_.broken = false;
  listed_qps_.Read();
  listed_qps_.Read();
  EXPECT_EQ(listed_.opened, 2);
}

TEST_F(FlowTables, TheKernelsWordOnWhoseAQueuePairIs) {
  listed_.qps = {Connected(7)};
  const rdma::KernelWord word = listed_qps_.WordOn({.lqpn = 7, .laddr = host_.local, .pid = 5});
  EXPECT_TRUE(word.there);
  EXPECT_EQ(word.pid, 5u);
  EXPECT_FALSE(listed_qps_.WordOn({.lqpn = 8, .laddr = host_.local}).there);
  EXPECT_TRUE(listed_qps_.WordOn({.lqpn = 7, .laddr = host_.remote}).there) << "no NIC of ours: nothing is proven";
}

TEST_F(FlowTables, AQueuePairIsKnownAsItConnectsAndForgottenAsItEnds) {
  listed_qps_.Read();
  cw_ev_qp event{.type = CW_QP_CONNECTS, .qpn = 7, .remote_qpn = 1007, .pid = 5, .has_av = 1};
  std::memcpy(event.remote, host_.remote.bytes.data(), sizeof(event.remote));
  std::strcpy(event.device, "mlx5_0");
  moments_.On(event);
  EXPECT_TRUE(qps_.BySentFlow(host_.FlowTo(1007)).has_value());
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("connects to h2 qp 0x3ef"));
  AddNative(1007);
  event.type = CW_QP_ENDS;
  moments_.On(event);
  EXPECT_FALSE(qps_.BySentFlow(host_.FlowTo(1007)).has_value());
  ends_.ForgetIdle();
  EXPECT_THAT(records_.sent, IsEmpty());
}

}  // namespace
}  // namespace cw::agent
