// SPDX-License-Identifier: Apache-2.0
// When tc egress changes the path of a flow: off a dead slot at once, elsewhere without disorder; and data as a
// witness.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <time.h>

#include <map>

#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

TEST_F(Egress, DeadSlotIsLeftOnTheNextPacket) {
  Place(1);
  EXPECT_EQ(Send(1), 50001);
  Kill(1);
  uint16_t port = Send(2);
  EXPECT_NE(port, 50001);
  EXPECT_GE(port, 50000);
  EXPECT_LE(port, 50003);
  EXPECT_EQ(rig_.CounterChanges(), "moves_dead=1");
  cw_tx_flow f = Sent();
  EXPECT_EQ(f.port, port);
  EXPECT_EQ(f.slot, port - 50000);
  EXPECT_EQ(f.reason, CW_MOVE_DEAD);
  EXPECT_EQ(f.moves, 1u);
  EXPECT_EQ(f.move_psn, 2u);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  auto ev = As<cw_ev_move>(events[0]);
  EXPECT_EQ(ev.type, CW_EV_MOVE);
  EXPECT_EQ(ev.from_slot, 1);
  EXPECT_EQ(ev.from_port, 50001);
  EXPECT_EQ(ev.to_slot, f.slot);
  EXPECT_EQ(ev.to_port, port);
  EXPECT_EQ(ev.psn, 2u);
  EXPECT_EQ(ev.reason, CW_MOVE_DEAD);
  EXPECT_EQ(ev.dry, 0);
  Revive(1);
  EXPECT_EQ(Send(3), port);  // no way back by itself
}

TEST_F(Egress, FlowsOfADeadSlotSpreadOverTheOthers) {
  for (uint32_t qpn = 1; qpn <= 150; ++qpn) Place(1, qpn);
  Kill(1);
  std::map<uint16_t, int> ports;
  for (uint32_t qpn = 1; qpn <= 150; ++qpn) ++ports[Send(1, qpn)];
  EXPECT_EQ(ports.count(50001), 0u);
  for (uint16_t port : {50000, 50002, 50003}) EXPECT_GT(ports[port], 25) << port;
}

TEST_F(Egress, ADeadPathsBackupsAreTakenFirst) {
  for (uint32_t qpn = 1; qpn <= 40; ++qpn) Place(1, qpn);
  rig_.pair(5).backup[1] = 0b1100;
  Kill(1);
  std::map<uint16_t, int> ports;
  for (uint32_t qpn = 1; qpn <= 20; ++qpn) ++ports[Send(1, qpn)];
  EXPECT_EQ(ports[50002], 10);
  EXPECT_EQ(ports[50003], 10);
  Kill(2);
  Kill(3);
  for (uint32_t qpn = 21; qpn <= 40; ++qpn) EXPECT_EQ(Send(1, qpn), 50000) << "any live one before none";
}

TEST_F(Egress, NativePathThatDiesIsLeftToo) {
  Protect();
  Send(0);
  Edit([](cw_tx_flow& f) { f.native_slot = 2; });  // the agent found the slot
  EXPECT_EQ(Send(1), 49999);
  Kill(2);
  EXPECT_NE(Send(2), 49999);
  EXPECT_EQ(Sent().reason, CW_MOVE_DEAD);
  auto ev = As<cw_ev_move>(rig_.Events().back());
  EXPECT_EQ(ev.from_slot, 2);
  EXPECT_EQ(ev.from_port, 0);
}

TEST_F(Egress, AssignableLiveSlotsAreTargetsAndAnyLiveOneBeforeADeadOne) {
  Place(1);
  rig_.pair(5).assign_mask = 0x0b;
  Kill(0);
  Kill(1);
  EXPECT_EQ(Send(1), 50003);
  Kill(3);
  EXPECT_EQ(Send(2), 50002);  // slot 2 is kept free (damped, say), but better than a dead path
  Kill(2);
  EXPECT_EQ(Send(3), 50002);
  EXPECT_EQ(rig_.CounterChanges(), "no_live_slot=1 moves_dead=2");
}

TEST_F(Egress, AWishForASlotThatHasAnotherPortNowIsDropped) {
  Place(1);
  Edit([](cw_tx_flow& f) {
    f.want_slot = 2;
    f.want_port = 51111;  // the slot's port when the wish was made
    f.want_force = 1;
  });
  EXPECT_EQ(Send(1), 50001);
  EXPECT_EQ(Send(2), 50001);
}

TEST_F(Egress, HardLockedFlowsStayLockedOnesLeave) {
  Place(1, 10);
  Place(1, 11);
  Edit([](cw_tx_flow& f) { f.flags = CW_STEER_HARD_LOCKED; }, 10);
  Edit([](cw_tx_flow& f) { f.flags = CW_STEER_LOCKED; }, 11);
  Kill(1);
  EXPECT_EQ(Send(1, 10), 50001);
  EXPECT_NE(Send(1, 11), 50001);
}

TEST_F(Egress, ObserveReportsOnceWhatItWouldDo) {
  Send(0);
  Edit([](cw_tx_flow& f) { f.native_slot = 1; });
  rig_.Events();
  for (int death = 1; death <= 2; ++death) {
    Kill(1);
    for (uint32_t i = 1; i <= 5; ++i) EXPECT_EQ(Send(static_cast<uint32_t>(death) * 10 + i), 49999);
    std::vector<Bytes> events = rig_.Events();
    ASSERT_EQ(events.size(), 1u) << death;
    auto ev = As<cw_ev_move>(events[0]);
    EXPECT_EQ(ev.type, CW_EV_MOVE);
    EXPECT_EQ(ev.dry, 1);
    EXPECT_EQ(ev.from_slot, 1);
    EXPECT_NE(ev.to_slot, 1);
    EXPECT_EQ(ev.to_port, 50000 + ev.to_slot);
    Revive(1);
  }
  EXPECT_EQ(Sent().moves, 0u);
  EXPECT_EQ(Sent().port, 0);
  rig_.ctl().mode = CW_MODE_OFF;
  Kill(1);
  EXPECT_EQ(Send(99), 49999);
  EXPECT_TRUE(rig_.Events().empty());
}

TEST_F(Egress, FailoverAloneMayBeObserved) {
  Place(1);
  rig_.ctl().mode = CW_MODE_PROTECT & ~CW_ACTS(CW_CAP_FAILOVER);
  Kill(1);
  EXPECT_EQ(Send(1), 50001) << "it stays where it was put";
  EXPECT_EQ(Send(2), 50001);
  const auto events = rig_.Events();
  ASSERT_EQ(events.size(), 1u) << "once per death";
  EXPECT_EQ(As<cw_ev_move>(events[0]).dry, 1);
  EXPECT_EQ(As<cw_ev_move>(events[0]).from_port, 50001);
  rig_.ctl().mode = CW_MODE_PROTECT & ~(CW_ACTS(CW_CAP_FAILOVER) | CW_DECIDES(CW_CAP_FAILOVER));
  Revive(1);
  Kill(1);
  EXPECT_EQ(Send(3), 50001);
  EXPECT_TRUE(rig_.Events().empty()) << "not even decided";
  rig_.ctl().mode = CW_MODE_OBSERVE | CW_ACTS(CW_CAP_FAILOVER);
  EXPECT_NE(Send(4), 50001) << "failover alone may act, too";
  EXPECT_EQ(Sent().reason, CW_MOVE_DEAD);
}

TEST_F(Egress, PlacingNewFlowsAloneMayBeObserved) {
  Protect();
  rig_.ctl().assign_jiffies = 1;
  rig_.ctl().mode = CW_MODE_PROTECT & ~CW_ACTS(CW_CAP_PLACE);
  EXPECT_EQ(Send(0), 49999);
  EXPECT_EQ(Sent().port, 0);
  const auto events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  const auto ev = As<cw_ev_move>(events[0]);
  EXPECT_EQ(ev.type, CW_EV_FLOW);
  EXPECT_EQ(ev.dry, 1);
  EXPECT_EQ(ev.to_port, 50000 + ev.to_slot) << "where it would have been put";
  EXPECT_EQ(rig_.CounterChanges(), "native_unprobed=1");
}

// A NIC's mode, beside the host's.
TEST_F(Egress, WhatAPairWithholdsIsNotDoneForItsFlows) {
  Place(1);
  EXPECT_EQ(Send(1), 50001);
  rig_.pair(5).withheld = CW_CAPS_ALL;
  EXPECT_EQ(Send(2), 49999) << "as in mode observe";
  Want(2, /*force=*/true);
  EXPECT_EQ(Send(3), 49999);
  rig_.ctl().assign_jiffies = 1;
  Send(0, kQpn + 1);  // a new one
  EXPECT_EQ(Sent(kQpn + 1).port, 0);
  rig_.pair(5).withheld = 1u << CW_CAP_BALANCE;
  EXPECT_EQ(Send(4), 50002) << "whose wish it is, the agent knows";
  rig_.ctl().mode = CW_MODE_OFF;
  rig_.pair(5).withheld = 0;
  EXPECT_EQ(Send(5), 49999) << "what is not withheld is not given";
}

TEST_F(Egress, ADeathIsToldAndNotActedOnWhereThatIsWithheld) {
  Place(1);
  rig_.Events();
  rig_.pair(5).withheld = CW_CAPS_ALL;
  Send(1);
  Edit([](cw_tx_flow& f) { f.native_slot = 1; });  // its native port goes with that path, too
  Kill(1);
  EXPECT_EQ(Send(2), 49999);
  EXPECT_EQ(Sent().slot, 1);
  const auto events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(As<cw_ev_move>(events[0]).reason, CW_MOVE_DEAD);
  EXPECT_EQ(As<cw_ev_move>(events[0]).dry, 1);
}

// A job's, beside the host's and the NIC's.
TEST_F(Egress, WhatAFlowWithholdsIsNotDoneForThatFlowAlone) {
  Place(1);
  Place(2, kQpn + 1);
  Edit([](cw_tx_flow& f) { f.withheld = CW_CAPS_ALL; });
  EXPECT_EQ(Send(1), 49999);
  EXPECT_EQ(Send(1, kQpn + 1), 50002);
  Kill(2);
  Edit([](cw_tx_flow& f) { f.withheld = 1u << CW_CAP_FAILOVER; }, kQpn + 1);
  EXPECT_EQ(Send(2, kQpn + 1), 50002) << "the rest acts: it stays where it was put";
  Edit([](cw_tx_flow& f) { f.withheld = 0; }, kQpn + 1);
  EXPECT_NE(Send(3, kQpn + 1), 50002);
}

TEST_F(Egress, WishIsGrantedWhenNothingIsInFlight) {
  Place(1);
  Send(1);
  Want(2);
  EXPECT_EQ(Send(2), 50001);
  Edit([](cw_tx_flow& f) {
    f.acked_psn = 2;  // PSN 2 is still under way
    f.acked_valid = 1;
  });
  EXPECT_EQ(Send(3), 50001);
  Edit([](cw_tx_flow& f) { f.acked_psn = 4; });
  EXPECT_EQ(Send(4), 50002);
  EXPECT_EQ(rig_.CounterChanges(), "moves_idle=1");
  EXPECT_EQ(Sent().want_slot, CW_SLOT_NONE);
  EXPECT_EQ(Sent().slot, 2);
  EXPECT_EQ(Sent().reason, CW_MOVE_IDLE);
  EXPECT_EQ(As<cw_ev_move>(rig_.Events().back()).psn, 4u);
}

TEST_F(Egress, WishIsGrantedAtAPause) {
  rig_.ctl().move_gap_ns = 300000000;
  Place(1);
  Want(2);
  EXPECT_EQ(Send(1), 50001);  // the first packet only starts the clock
  EXPECT_GT(Sent().last_tx_ns, 0u);
  Edit([](cw_tx_flow& f) { f.last_tx_ns -= 400000000; });
  EXPECT_EQ(Send(2), 50002);
  EXPECT_EQ(rig_.CounterChanges(), "moves_gap=1");
  EXPECT_EQ(Sent().last_tx_ns, 0u);
}

// Moves over a NIC that keeps departure times. The path behind slot 1 takes longer than that of slot 2.
class HeldMove : public Egress {
 protected:
  void SetUp() override {
    cw_pair& pair = rig_.pair(5);
    pair.departs = 1;
    pair.slot[1].raw_ns = 7'000'000'000 + 8'000'000;
    pair.slot[2].raw_ns = 7'000'000'000;
    pair.slot[1].jump_ns = 5'000'000;
    pair.slot[2].jump_ns = 4'000'000;
    Place(1);
  }
  // 8 ms between the paths, 9 of what both swing by, and the margin: an emulated processor takes long for a packet.
  static constexpr uint64_t kHoldNs = 8'000'000 + 9'000'000 + 50'000;
  static uint64_t NowNs() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  }
};

TEST_F(HeldMove, PacketsWaitUntilThoseUnderWayHaveArrived) {
  Want(2);
  const uint64_t before = NowNs();
  const RunResult first = rig_.Tc(Build(Data(1)));
  const uint64_t after = NowNs();
  EXPECT_EQ(Load16(first.frame, UdpOffset(first.frame)), 50002);
  EXPECT_GE(first.departs_ns, before + kHoldNs);
  EXPECT_LE(first.departs_ns, after + kHoldNs);
  EXPECT_EQ(rig_.CounterChanges(), "moves_held=1");
  EXPECT_EQ(Sent().reason, CW_MOVE_HELD);
  EXPECT_EQ(Sent().want_slot, CW_SLOT_NONE);
  const uint64_t until = NowNs() + 1'000'000'000;
  Edit([&](cw_tx_flow& f) { f.hold_ns = until; });
  EXPECT_EQ(rig_.Tc(Build(Data(2))).departs_ns, until) << "together, so that fq keeps their order";
  EXPECT_EQ(rig_.Tc(Build(Data(3)), 0, until + 5).departs_ns, until + 5) << "later, because its sender wants so";
  Edit([&](cw_tx_flow& f) { f.hold_ns = NowNs(); });
  EXPECT_EQ(rig_.Tc(Build(Data(4))).departs_ns, 0u);
  EXPECT_EQ(Sent().hold_ns, 0u) << "no clock is read any more";
}

TEST_F(HeldMove, TheNextMoveWaitsForTheEndOfThis) {
  Want(2);
  EXPECT_EQ(Send(1), 50002);
  Edit([](cw_tx_flow& f) { f.hold_ns = NowNs() + 1'000'000'000; });
  rig_.pair(5).slot[3].raw_ns = 7'000'000'000;
  Want(3, true);
  EXPECT_EQ(Send(2), 50002);
  Edit([](cw_tx_flow& f) { f.hold_ns = NowNs(); });
  EXPECT_EQ(Send(3), 50002) << "the packet that ends it";
  EXPECT_EQ(Send(4), 50003);
  EXPECT_EQ(rig_.CounterChanges(), "moves_held=2");
}

TEST_F(HeldMove, ADeadPathIsLeftAtOnce) {
  Want(2);
  EXPECT_EQ(Send(1), 50002);
  Kill(2);
  const RunResult r = rig_.Tc(Build(Data(2)));
  EXPECT_NE(Load16(r.frame, UdpOffset(r.frame)), 50002);
  EXPECT_EQ(r.departs_ns, 0u);
}

TEST_F(HeldMove, ToASlowerPathOnlyWhatBothSwingByIsWaitedFor) {
  std::swap(rig_.pair(5).slot[1].raw_ns, rig_.pair(5).slot[2].raw_ns);
  Want(2);
  const uint64_t before = NowNs();
  const RunResult r = rig_.Tc(Build(Data(1)));
  EXPECT_GE(r.departs_ns, before + kHoldNs - 8'000'000);
  EXPECT_LE(r.departs_ns, NowNs() + kHoldNs - 8'000'000);
}

TEST_F(HeldMove, WithoutAQueueThatHoldsOrADelayThatIsKnownOrShortNothingIsHeld) {
  const auto stays = [&](uint32_t psn) {
    Want(2);
    const RunResult r = rig_.Tc(Build(Data(psn)));
    EXPECT_EQ(Load16(r.frame, UdpOffset(r.frame)), 50001);
    EXPECT_EQ(r.departs_ns, 0u);
  };
  rig_.pair(5).departs = 0;
  stays(1);
  rig_.pair(5).departs = 1;
  rig_.pair(5).slot[1].raw_ns += 20'000'000;
  stays(2);
  rig_.pair(5).slot[1].raw_ns = 0;
  stays(3);
  rig_.pair(5).slot[1].raw_ns = 7'000'000'000;
  rig_.pair(5).slot[2].raw_ns = 0;
  stays(4);
  EXPECT_EQ(rig_.CounterChanges(), "");
}

TEST_F(Egress, WishIsForced) {
  Place(1);
  Want(3, true);
  EXPECT_EQ(Send(1), 50003);
  EXPECT_EQ(rig_.CounterChanges(), "moves_forced=1");
}

TEST_F(Egress, WishForADeadSlotIsDropped) {
  Place(1);
  Want(3, true);
  Kill(3);
  EXPECT_EQ(Send(1), 50001);
  EXPECT_EQ(Sent().want_slot, CW_SLOT_NONE);
}

TEST_F(Egress, WishBackToTheNativePort) {
  Place(1);
  Edit([](cw_tx_flow& f) {
    f.native_slot = 2;
    f.want_slot = 2;
    f.want_port = 0;
    f.want_force = 1;
  });
  EXPECT_EQ(Send(1), 49999);
  EXPECT_EQ(Sent().port, 0);
  EXPECT_EQ(Sent().slot, 2);
}

TEST_F(Egress, WhenTheLeaseIsOverAFlowGoesHomeWithNothingInFlight) {
  Place(1);
  Want(3, true);  // of the agent that is gone; its go-back-N is nobody's to accept now
  rig_.ctl().lease_jiffies = 1;
  EXPECT_EQ(Send(1), 50001);
  EXPECT_EQ(Sent().want_slot, CW_SLOT_NONE);
  Edit([](cw_tx_flow& f) {
    f.acked_psn = 2;
    f.acked_valid = 1;
  });
  EXPECT_EQ(Send(2), 49999);
  EXPECT_EQ(rig_.CounterChanges(), "moves_lease=1");
  EXPECT_EQ(Sent().port, 0);
  EXPECT_EQ(Sent().slot, CW_SLOT_NONE);
  const auto ev = As<cw_ev_move>(rig_.Events().back());
  EXPECT_EQ(ev.reason, CW_MOVE_LEASE);
  EXPECT_EQ(ev.from_slot, 1);
  EXPECT_EQ(ev.to_port, 0);
  EXPECT_EQ(ev.psn, 2u);
  EXPECT_EQ(Send(3), 49999);
  EXPECT_TRUE(rig_.Events().empty());
  EXPECT_EQ(Sent().last_tx_ns, 0u) << "no clock is read any more";
}

TEST_F(Egress, WhenTheLeaseIsOverAFlowGoesHomeAtAPause) {
  rig_.ctl().move_gap_ns = 300000000;
  Place(1);
  Edit([](cw_tx_flow& f) { f.native_slot = 2; });
  rig_.ctl().lease_jiffies = 1;
  for (uint32_t psn = 1; psn < 5; ++psn) EXPECT_EQ(Send(psn), 50001) << "in flight";
  Edit([](cw_tx_flow& f) { f.last_tx_ns -= 400000000; });
  EXPECT_EQ(Send(5), 49999);
  EXPECT_EQ(Sent().slot, 2);
}

TEST_F(Egress, WhenTheLeaseIsOverADeadPathIsLeftAtOnceAndNoFlowGoesHomeToOne) {
  Place(1);
  Edit([](cw_tx_flow& f) {
    f.native_slot = 2;
    f.acked_psn = 1;
    f.acked_valid = 1;
  });
  Kill(2);
  rig_.ctl().lease_jiffies = 1;
  EXPECT_EQ(Send(1), 50001);
  Kill(1);
  const uint16_t port = Send(2);
  EXPECT_TRUE(port == 50000 || port == 50003) << port;
  Edit([](cw_tx_flow& f) { f.acked_psn = 3; });
  Revive(2);
  EXPECT_EQ(Send(3), 49999);
  EXPECT_EQ(rig_.CounterChanges(), "moves_lease=1 moves_dead=1");
}

TEST_F(Egress, ALeaseRenewedInTimeMovesNothing) {
  Place(1);
  Edit([](cw_tx_flow& f) {
    f.acked_psn = 1;
    f.acked_valid = 1;
  });
  rig_.ctl().lease_jiffies = INT64_MAX;
  EXPECT_EQ(Send(1), 50001);
  rig_.ctl().mode = CW_MODE_OBSERVE;
  rig_.ctl().lease_jiffies = 1;
  EXPECT_EQ(Send(2), 49999);
  EXPECT_EQ(Sent().port, 50001) << "observe rewrites nothing, and moves nothing";
}

TEST_F(Egress, WishesWaitInObserve) {
  Send(0);
  Want(2, true);
  EXPECT_EQ(Send(1), 49999);
  EXPECT_EQ(Sent().want_slot, 2);
}

TEST_F(Egress, DataIsMarkedOncePerRoundTripAndNeverTwice) {
  Place(1);
  rig_.pair(5).cur_round = 700;
  Send(10);
  EXPECT_EQ(Sent().mark_psn, 10u);
  EXPECT_EQ(Sent().mark_round, 700u);
  EXPECT_EQ(Sent().mark_slot, 1u);
  rig_.pair(5).cur_round = 701;
  Send(11);
  EXPECT_EQ(Sent().mark_psn, 10u);  // outstanding
  Edit([](cw_tx_flow& f) { f.mark_round = 0; });
  Send(11);  // sent before: an earlier copy may be what is acknowledged
  EXPECT_EQ(Sent().mark_round, 0u);
  Send(12);
  EXPECT_EQ(Sent().mark_psn, 12u);
  EXPECT_EQ(Sent().mark_round, 701u);
  rig_.pair(5).cur_round = 701 + 65;
  Send(13);  // the old mark never resolved
  EXPECT_EQ(Sent().mark_psn, 13u);
  Kill(1);
  Send(14);  // moved: a mark of the new slot
  EXPECT_EQ(Sent().mark_psn, 14u);
  EXPECT_EQ(Sent().mark_slot, Sent().slot);
  Edit([](cw_tx_flow& f) { f.mark_round = 0; });
  Frame ack = Data(99);
  ack.opcode = 0x11;
  Send(ack);
  EXPECT_EQ(Sent().mark_round, 0u);
}

TEST_F(Egress, SamplesNameThePathTaken) {
  Place(1);
  rig_.ctl().sample_level_tx = 0;
  Send(5);
  Kill(1);
  uint16_t port = Send(6);
  Send(6);
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 3u);
  auto s = As<cw_ev_sample>(records[0]);
  EXPECT_TRUE(s.is_tx);
  EXPECT_EQ(s.slot, 1);
  EXPECT_EQ(s.port, 50001);
  EXPECT_EQ(s.pair, 5);
  EXPECT_EQ(s.psn, 5u);
  EXPECT_FALSE(s.duplicate);
  s = As<cw_ev_sample>(records[1]);
  EXPECT_EQ(s.port, port);
  EXPECT_EQ(s.slot, port - 50000);
  EXPECT_TRUE(As<cw_ev_sample>(records[2]).duplicate);
}

}  // namespace
}  // namespace cw::test
