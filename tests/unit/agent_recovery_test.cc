// SPDX-License-Identifier: Apache-2.0
//
// What becomes of flows whose path is lost: resends, other paths, other ports by chance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RecoveryParts : public ::testing::Test {
 protected:
  RecoveryParts() { host_.AddPaths({100, 101, 102}); }

  // A flow by the slot, with packets under way, whose queue pair is known for certain and was answered no READ.
  FlowKey AddFlow(uint32_t qpn, uint8_t slot) {
    const FlowKey key = host_.AddFlow(records_, qpn, slot, [](cw_tx_flow& record) {
      record.flow.req.next = 20;
      record.flow.req.seen = 1;
      record.acked_psn = 10;
      record.acked_valid = 1;
    });
    qps_.Register({.lqpn = qpn + 1000,
                   .rqpn = qpn,
                   .laddr = host_.local,
                   .raddr = host_.remote,
                   .pid = 5,
                   .source = "hook",
                   .raddr_by_kernel = true});
    records_.received[{.src = host_.remote, .dst = host_.local, .dqpn = qpn + 1000}] = {};
    return key;
  }
  // Ticks of a millisecond.
  void Run(int ms) {
    for (int i = 0; i < ms; ++i) {
      clock_.Advance(kMs);
      timers_.Run();
    }
  }
  PathLost Lost(uint8_t slot, LossCause cause = LossCause::kDead, bool act = true) {
    return {.pair = host_.pair(), .slot = slot, .cause = cause, .act = act};
  }
  uint64_t Count(const std::string& name) {
    uint64_t found = UINT64_MAX;
    const CounterSink sink = [&](const char* n, uint64_t value, const char*) {
      if (n == name) found = value;
    };
    tails_.TellCounts(sink);
    rerolls_.TellCounts(sink);
    return found;
  }

  OnePair host_;
  MemoryFlows records_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  ManualTimers timers_;
  DryRun dry_run_{host_.pairs,  host_.flows,
                  qps_,         host_.mesh,
                  host_.names,  clock_,
                  host_.events, {.hops = [](uint32_t, uint8_t) { return nullptr; }, .acts = [] { return true; }}};
  Allowed allowed_ = Mode::kProtect;
  int delivered_ = 0;
  Tails tails_{host_.pairs,
               records_,
               qps_,
               host_.mesh,
               host_.names,
               clock_,
               timers_,
               host_.mail,
               dry_run_,
               host_.events,
               {.allowed = [this] { return allowed_; },
                .deliver =
                    [this](uint32_t, absl::Span<const uint8_t>) {
                      ++delivered_;
                      return absl::OkStatus();
                    }}};
  std::optional<probe::Hashing> hashing_ = probe::Hashing::kQpn;
  std::vector<FlowKey> rolled_;
  Rerolls rerolls_{host_.pairs,
                   records_,
                   host_.mesh,
                   host_.names,
                   clock_,
                   timers_,
                   host_.events,
                   /*seed=*/1,
                   {.allowed = [this] { return allowed_; },
                    .hashing = [this](uint32_t) { return hashing_; },
                    .rolled = [this](const FlowKey& flow) { rolled_.push_back(flow); }}};
  bool in_motion_ = false;
  std::vector<FlowKey> left_;
  KernelMover mover_{host_.pairs,
                     host_.flows,
                     records_,
                     host_.mesh,
                     host_.names,
                     host_.events,
                     {.in_motion = [this](uint32_t) { return in_motion_; },
                      .left = [this](const FlowKey& flow, uint32_t, control::ReturnPlace,
                                     control::ReturnPlace) { left_.push_back(flow); },
                      .allowed = [this] { return allowed_; }}};
};

TEST_F(RecoveryParts, WhatWasUnderWayOnALostPathIsAskedForAgainAndThePeerIsToldTwice) {
  AddFlow(7, 1);
  AddFlow(8, 2);
  tails_.OnPathLost(Lost(1));
  EXPECT_EQ(Count("tails_watched"), 1u);
  Run(10);
  EXPECT_GE(delivered_, 1);
  ASSERT_THAT(host_.events.all, testing::Not(IsEmpty()));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("queue pair to h2 qp 0x7 resends 10 packets: they died with path 1"));
  const auto notices = host_.mail.Take<probe::PathDeath>();
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_THAT(notices[0].qpns, ElementsAre(7));
}

TEST_F(RecoveryParts, AFlowThatWentOnByItselfIsAskedForNothing) {
  const FlowKey key = AddFlow(7, 1);
  tails_.OnPathLost(Lost(1));
  records_.sent[key].acked_psn = 20;
  Run(10);
  EXPECT_EQ(delivered_, 0);
}

TEST_F(RecoveryParts, AQueuePairThatReadsIsLeftToItsTimer) {
  AddFlow(7, 1);
  records_.received.begin()->second.resp.packets = 1;
  tails_.OnPathLost(Lost(1));
  Run(10);
  EXPECT_EQ(delivered_, 0);
  EXPECT_EQ(Count("tails_reads_left"), 1u);
}

TEST_F(RecoveryParts, WhereResendsAreOnlyObservedTheyAreToldAndPeersAreNot) {
  allowed_ = Mode::kObserve;
  AddFlow(7, 1);
  tails_.OnPathLost(Lost(1));
  Run(10);
  EXPECT_EQ(delivered_, 0);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_TRUE(host_.events.all[0].dry);
  EXPECT_THAT(host_.mail.all, IsEmpty());
}

TEST_F(RecoveryParts, APeersDeadPathConcernsTheQueuePairsThatItNames) {
  AddFlow(7, 1);
  AddFlow(8, 1);
  tails_.OnPeersPathDied(host_.pair(), {.slot = 3, .qpns = {1007}});
  EXPECT_EQ(Count("tails_watched"), 1u);
  EXPECT_EQ(Count("path_deaths_heard"), 1u);
}

TEST_F(RecoveryParts, FlowsOfALossyPathGoToTheUsableOneThatHasTheFewest) {
  const FlowKey a = AddFlow(7, 1), b = AddFlow(8, 1), locked = AddFlow(9, 1);
  AddFlow(10, 2);
  host_.flows.sent[locked].tx.flags = CW_STEER_HARD_LOCKED;
  mover_.OnPathLost(Lost(1, LossCause::kLossy));
  std::multiset<uint8_t> to = {records_.sent[a].want_slot, records_.sent[b].want_slot};
  EXPECT_THAT(to, ElementsAre(0, 0)) << "0 has none, then as many as 2";
  EXPECT_EQ(records_.sent[a].want_force, 1);
  EXPECT_EQ(records_.sent[locked].want_slot, CW_SLOT_NONE);
  EXPECT_THAT(left_, testing::UnorderedElementsAre(a, b));
}

TEST_F(RecoveryParts, TheKernelMovesFlowsOffADeadPathAndWhatIsOnlyObservedMovesNothing) {
  const FlowKey key = AddFlow(7, 1);
  mover_.OnPathLost(Lost(1));
  mover_.OnPathLost(Lost(1, LossCause::kLossy, /*act=*/false));
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
}

TEST_F(RecoveryParts, PortsThatNoSlotWatchesAreLeftWhilePortsAreDealtOutAnew) {
  host_.pair().active = true;
  const FlowKey key = AddFlow(7, 1);
  host_.flows.sent[key].tx.port = 0;  // on its own, which no slot stands for
  mover_.LeaveUnwatchedPorts();
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
  in_motion_ = true;
  mover_.LeaveUnwatchedPorts();
  EXPECT_NE(records_.sent[key].want_slot, CW_SLOT_NONE);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("no slot is left to watch the ports of 1 flow"));
}

TEST_F(RecoveryParts, WhereTheQpnCountsAStuckFlowGetsAnotherPortByChance) {
  const FlowKey key = AddFlow(7, 1);
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  rerolls_.OnPathLost(Lost(1, LossCause::kLossy));
  EXPECT_THAT(timers_.waiting, IsEmpty()) << "only of dead ones";
  rerolls_.OnPathLost(Lost(1));
  Run(40);
  EXPECT_THAT(rolled_, testing::Contains(key));
  EXPECT_NE(records_.sent[key].port, 101);
  EXPECT_GE(Count("flows_rerolled"), 1u);
}

TEST_F(RecoveryParts, WherePortsChooseNothingIsLeftToChance) {
  hashing_ = probe::Hashing::kPorts;
  AddFlow(7, 1);
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  rerolls_.OnPathLost(Lost(1));
  EXPECT_THAT(timers_.waiting, IsEmpty());
}

}  // namespace
}  // namespace cw::agent
