// SPDX-License-Identifier: Apache-2.0
//
// Who moves flows, the kernel's program or their owners' libraries, and how what left a bad path comes back by either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/placer.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/recovery/returns.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Movers : public ::testing::Test {
 protected:
  static constexpr absl::Duration kStep = absl::Seconds(1);

  Movers() {
    host_.AddPaths({50'000, 50'001, 50'002});
    host_.pair().table_seen = true;
  }
  // A flow that the kernel sees.
  FlowKey AddSeen(uint32_t qpn, uint8_t slot) { return host_.AddFlow(records_, qpn, slot); }
  // A connected queue pair whose library moves it.
  rdma::QpInfo AddOwned(uint32_t qpn, uint16_t port) {
    const rdma::QpInfo qp{.lqpn = qpn,
                          .rqpn = qpn + 1000,
                          .laddr = host_.local,
                          .raddr = host_.remote,
                          .pid = 5,
                          .udp_sport = port,
                          .source = "inproc",
                          .owner = rdma::OwnerSums{.can = CW_INPROC_CAN_MOVE_PORT, .told_can = true}};
    qps_.Register(qp);
    return qp;
  }
  void Answer(const rdma::MoveOrder& order, int error = 0) {
    const rdma::QpInfo qp = *qps_.ByReceivedFlow({.dst = order.laddr, .dqpn = order.lqpn});
    rdma::QpInfo moved = qp;
    if (error == 0) moved.udp_sport = order.udp_sport;
    qps_.Register(moved);
    owners_.OnMoved(qp, {.request = order.request, .error = error});
  }
  PathLost Lost(uint8_t slot, LossCause cause = LossCause::kDead) {
    return {.pair = host_.pair(), .slot = slot, .cause = cause, .act = true};
  }

  OnePair host_;
  MemoryFlows records_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  Allowed allowed_ = Mode::kProtect;
  bool assigns_ = false;
  std::vector<uint16_t> watched_, released_;
  std::vector<rdma::MoveOrder> orders_;
  UnseenFlows unseen_{host_.pairs,
                      host_.nics,
                      host_.flows,
                      qps_,
                      host_.mesh,
                      {.assigns = [this] { return assigns_; },
                       .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                       .watch =
                           [this](uint32_t, uint16_t port) {
                             watched_.push_back(port);
                             return uint8_t{12};
                           },
                       .release = [this](uint32_t, uint16_t port, const FlowKey&) { released_.push_back(port); }}};
  OwnerMover owners_{host_.pairs,
                     host_.flows,
                     qps_,
                     unseen_,
                     host_.mesh,
                     host_.names,
                     clock_,
                     host_.events,
                     {.allowed = [this] { return allowed_; },
                      .send =
                          [this](const std::vector<rdma::MoveOrder>& orders) {
                            orders_.insert(orders_.end(), orders.begin(), orders.end());
                            return std::vector<uint32_t>();
                          },
                      .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                      .left = [this](const FlowKey& flow, uint32_t pair, control::ReturnPlace from,
                                     control::ReturnPlace to) { owner_returns_.Left(flow, pair, from, to); }}};
  KernelMover kernel_{host_.pairs,
                      host_.flows,
                      records_,
                      host_.mesh,
                      host_.names,
                      host_.events,
                      {.in_motion = [](uint32_t) { return false; },
                       .left = [this](const FlowKey& flow, uint32_t pair, control::ReturnPlace from,
                                      control::ReturnPlace to) { returns_.Left(flow, pair, from, to); },
                       .allowed = [this] { return allowed_; }}};
  bool wanted_ = true;
  Returns returns_{
      kStep, host_.pairs, host_.mesh, host_.names, kernel_, host_.events, [this](uint32_t, const FlowKey&) {
        return wanted_;
      }};
  Returns owner_returns_{
      kStep, host_.pairs, host_.mesh, host_.names, owners_, host_.events, [this](uint32_t, const FlowKey&) {
        return wanted_;
      }};
};

TEST_F(Movers, AFlowThatTheKernelMovedComesBackAtAMomentThatKeepsOrder) {
  const FlowKey key = AddSeen(7, 1);
  kernel_.OnPathLost(Lost(1, LossCause::kLossy));
  cw_tx_flow& record = records_.sent[key];
  record.slot = record.want_slot;
  record.port = record.want_port;
  record.want_slot = CW_SLOT_NONE;
  host_.flows.sent[key].tx = record;
  returns_.Step(clock_.NowNs());
  clock_.Advance(2 * kSecond);
  returns_.Step(clock_.NowNs());
  EXPECT_EQ(records_.sent[key].want_slot, 1);
  EXPECT_EQ(records_.sent[key].want_force, 0);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("goes back to path 1, which recovered"));
}

TEST_F(Movers, WhereReturnsAreNotWantedWhatIsAwayIsForgotten) {
  const FlowKey key = AddSeen(7, 1);
  returns_.Left(key, host_.index, {1, 50'001}, {2, 50'002});
  wanted_ = false;
  returns_.Step(clock_.NowNs());
  wanted_ = true;
  clock_.Advance(5 * kSecond);
  returns_.Step(clock_.NowNs());
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
}

TEST_F(Movers, AnOwnersQueuePairLeavesADeadPathAndComesBackByTheSameRule) {
  AddOwned(7, 50'001);
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  owners_.OnPathLost(Lost(1));
  ASSERT_THAT(orders_, SizeIs(1));
  EXPECT_NE(orders_[0].udp_sport, 50'001);
  Answer(orders_[0]);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("was moved by its owner's library"));
  host_.shared().slot[1].state = CW_SLOT_UP;
  owner_returns_.Step(clock_.NowNs());
  clock_.Advance(2 * kSecond);
  owner_returns_.Step(clock_.NowNs());
  ASSERT_THAT(orders_, SizeIs(2));
  EXPECT_EQ(orders_[1].udp_sport, 50'001);
}

TEST_F(Movers, WhatIsOnlyObservedIsToldOfOwnersToo) {
  allowed_ = Mode::kObserve;
  AddOwned(7, 50'001);
  owners_.OnPathLost(Lost(1));
  EXPECT_THAT(orders_, IsEmpty());
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("would be moved by its owner's library"));
}

TEST_F(Movers, WhatCouldNotLeaveAtOnceIsAskedForInTheNextSecond) {
  const rdma::QpInfo qp = AddOwned(7, 50'001);
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  owners_.OnPathLost(Lost(1));
  ASSERT_THAT(orders_, SizeIs(1));
  owners_.Step();
  EXPECT_THAT(orders_, SizeIs(1)) << "it is under way";
  Answer(orders_[0], /*error=*/EAGAIN);
  owners_.Step();
  EXPECT_THAT(orders_, SizeIs(2));
}

TEST_F(Movers, OneOwnerOfAPortTheKernelOrTheLibrary) {
  const rdma::QpInfo qp = AddOwned(7, 50'001);
  EXPECT_EQ(owners_.WhyNot(qp), "");
  host_.flows.sent[rdma::SentFlow(qp)];
  EXPECT_THAT(owners_.WhyNot(qp), HasSubstr("its packets pass the kernel"));
}

TEST_F(Movers, PortsOfUnseenQueuePairsAreWatchedWhileTheyAreThere) {
  const rdma::QpInfo qp = AddOwned(7, 50'500);
  unseen_.Follow();
  EXPECT_THAT(watched_, ElementsAre(50'500));
  EXPECT_EQ(unseen_.SlotOf(rdma::SentFlow(qp), 50'500), 12);
  ASSERT_THAT(unseen_.OnPaths(), SizeIs(1));
  unseen_.OnNative(host_.index, {.port = 50'500, .slot = 13});
  EXPECT_EQ(unseen_.OnPaths()[0].slot, 13);
  unseen_.Follow();
  EXPECT_THAT(watched_, SizeIs(1)) << "once";
  qps_.Unregister(qp);
  unseen_.Follow();
  EXPECT_THAT(released_, ElementsAre(50'500));
}

TEST_F(Movers, APortOfAPathIsThatPathsThoughNobodyWatchesIt) {
  EXPECT_EQ(unseen_.SlotOf(host_.FlowTo(9), 50'002), 2);
  EXPECT_EQ(unseen_.SlotOf(host_.FlowTo(9), 51'111), CW_SLOT_NONE);
}

class Places : public Movers {
 protected:
  static rdma::Requester Process(uint32_t pid) { return {.pid = pid, .uid = 1000}; }
  rdma::QpInfo Asking(uint32_t qpn) const {
    return {.lqpn = qpn, .rqpn = qpn + 1000, .laddr = host_.local, .raddr = host_.remote, .pid = 5};
  }
  uint64_t Count(const std::string& wanted) const {
    uint64_t found = 0;
    placer_.TellCounts([&](const char* name, uint64_t value, const char*) { found += name == wanted ? value : 0; });
    return found;
  }

  Allow placing_ = Allow::kAct;
  bool paths_known_ = true;
  Placer placer_{
      host_.pairs,
      host_.nics,
      qps_,
      owners_,
      host_.mesh,
      host_.events,
      {.allowed = [this](uint32_t, const rdma::QpInfo&) { return placing_; },
       .paths_known = [this](uint32_t) { return paths_known_; },
       .assigns = [this] { return assigns_; },
       .word_on = [](const rdma::QpInfo&) { return rdma::KernelWord{.asked = true, .there = true, .pid = 5}; }}};
};

TEST_F(Places, AQueuePairGetsThePathWithTheFewest) {
  AddOwned(1, 50'000);
  AddOwned(2, 50'002);
  const rdma::Placement placement = placer_.Place(Asking(7), Process(5));
  EXPECT_EQ(placement.verdict, CW_INPROC_PLACED);
  EXPECT_EQ(placement.udp_sport, 50'001);
  EXPECT_EQ(Count("qps_placed"), 1u);
}

TEST_F(Places, OnlyItsOwnProcessGetsAPath) {
  EXPECT_EQ(placer_.Place(Asking(7), Process(6)).verdict, CW_INPROC_NOT_YOURS);
  EXPECT_EQ(Count("qps_not_owned"), 1u);
}

TEST_F(Places, WhereItIsNotToActItIsToldAtMost) {
  placing_ = Allow::kOff;
  EXPECT_EQ(placer_.Place(Asking(7), Process(5)).verdict, CW_INPROC_NOT_ACTING);
  EXPECT_THAT(host_.events.all, IsEmpty());
  placing_ = Allow::kObserve;
  EXPECT_EQ(placer_.Place(Asking(7), Process(5)).verdict, CW_INPROC_NOT_ACTING);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("would have been put on path"));
}

TEST_F(Places, NobodyIsPutWherePathsAreNotKnownOrTheKernelDoesIt) {
  paths_known_ = false;
  EXPECT_EQ(placer_.Place(Asking(7), Process(5)).verdict, CW_INPROC_NO_PATHS);
  paths_known_ = true;
  assigns_ = host_.nics[0].attached = true;
  EXPECT_EQ(placer_.Place(Asking(7), Process(5)).verdict, CW_INPROC_BY_KERNEL);
}

}  // namespace
}  // namespace cw::agent
