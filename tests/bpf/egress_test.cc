// SPDX-License-Identifier: Apache-2.0
// tc egress, byte for byte: what is steered leaves with another source port and the right ICRC, all else as it came.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <functional>
#include <map>
#include <set>

#include "bpf/psn.h"
#include "maps/siphash.h"
#include "tests/bpf/prog_rig.h"

namespace cw::test {
namespace {

constexpr uint32_t kOurs = 0x0a000001, kPeer = 0x0a000002, kQpn = 0x55;
constexpr int kUnspec = -1;  // TC_ACT_UNSPEC

// What the frame must be with another source port: rebuilt from its fields, nothing patched.
Bytes WithPort(Frame f, uint16_t port) {
  f.sport = port;
  return Build(f);
}

class Egress : public ::testing::Test {
 protected:
  Egress() : Egress(ProgRig::Options()) {}
  explicit Egress(const ProgRig::Options& options) : rig_(options) { rig_.AddPair(5, kOurs, kPeer, 4); }

  static Frame Data(uint32_t psn, uint32_t qpn = kQpn) {
    Frame f;
    f.saddr = kOurs;
    f.daddr = kPeer;
    f.opcode = 0x07;
    f.dqpn = qpn;
    f.psn = psn;
    f.sport = 49999;
    f.payload = Bytes(256, static_cast<uint8_t>(psn));
    return f;
  }
  static cw_flow_key Key(uint32_t qpn = kQpn) { return FlowKeyV4(kOurs, kPeer, qpn); }

  // Sends the frame and returns the source port that it left with; all else must be as built with that port.
  uint16_t Send(const Frame& f) {
    RunResult r = rig_.Tc(Build(f));
    EXPECT_EQ(r.verdict, kUnspec);
    uint16_t port = Load16(r.frame, IpOffset(r.frame) + 20);
    EXPECT_EQ(r.frame, WithPort(f, port));
    EXPECT_EQ(StoredIcrc(r.frame), Icrc(r.frame));
    EXPECT_TRUE(UdpChecksumOk(r.frame));
    return port;
  }
  uint16_t Send(uint32_t psn, uint32_t qpn = kQpn) { return Send(Data(psn, qpn)); }

  cw_tx_flow Sent(uint32_t qpn = kQpn) { return rig_.TxFlow(Key(qpn)).value(); }
  void Edit(const std::function<void(cw_tx_flow&)>& change, uint32_t qpn = kQpn) {
    cw_tx_flow f = Sent(qpn);
    change(f);
    rig_.SetTxFlow(Key(qpn), f);
  }
  // The agent's wish to move the flow to a slot.
  void Want(uint8_t slot, bool force = false) {
    Edit([&](cw_tx_flow& f) {
      f.want_slot = slot;
      f.want_port = rig_.pair(5).slot[slot].port;
      f.want_force = force;
    });
  }
  void Kill(int slot) {
    rig_.pair(5).slot[slot].state = CW_SLOT_DEAD;
    rig_.pair(5).slot[slot].deaths++;
    rig_.pair(5).live_mask &= ~(1u << slot);
  }
  void Revive(int slot) {
    rig_.pair(5).slot[slot].state = CW_SLOT_UP;
    rig_.pair(5).live_mask |= 1u << slot;
  }
  void Protect() { rig_.ctl().mode = CW_MODE_PROTECT; }
  // A running flow on the slot, in mode protect.
  void Place(uint8_t slot, uint32_t qpn = kQpn) {
    Protect();
    Send(0, qpn);
    Edit(
        [&](cw_tx_flow& f) {
          f.slot = slot;
          f.port = rig_.pair(5).slot[slot].port;
        },
        qpn);
    rig_.Events();
    rig_.CounterChanges();
  }

  ProgRig rig_;
};

TEST_F(Egress, EveryExitPassesTheFrameAndIsCountedUnderItsName) {
  auto with = [this](auto change, uint32_t gso_size = 0) {
    Frame f = Data(1);
    change(f);
    Bytes frame = Build(f);
    RunResult r = rig_.Tc(frame, gso_size);
    EXPECT_EQ(r.verdict, kUnspec);
    EXPECT_EQ(r.frame, frame);
    return rig_.CounterChanges();
  };
  EXPECT_EQ(with([](Frame& f) { f.vlan_tags = 3; }), "vlan_too_deep=1");
  EXPECT_EQ(with([](Frame& f) { f.frag = 0x2000; }), "ip_fragment=1");
  EXPECT_EQ(with([](Frame& f) { f.udp_len_delta = 4; }), "udp_length_bad=1");
  EXPECT_EQ(with([](Frame& f) { f.bth_flags = 0x42; }), "bth_version=1");
  EXPECT_EQ(with([](Frame& f) {
              f.version_ihl = 0x46;
              f.ip_options = Bytes(4, 1);
            }),
            "ip_options=1");
  EXPECT_EQ(with([](Frame&) {}, 1400), "gso_frames=1");
  EXPECT_EQ(with([](Frame& f) { f.dport = 53; }), "");
  EXPECT_EQ(with([](Frame& f) { f.protocol = 6; }), "");
  EXPECT_EQ(with([](Frame& f) { f.protocol = 6; }, 1400), "");
  EXPECT_FALSE(rig_.TxFlow(Key()).has_value());
}

TEST_F(Egress, FlowAppearsNativeAndIsReported) {
  EXPECT_EQ(Send(7), 49999);
  EXPECT_EQ(rig_.CounterChanges(), "native_unprobed=1");
  cw_tx_flow f = Sent();
  EXPECT_EQ(f.pair, 5);
  EXPECT_EQ(f.port, 0);
  EXPECT_EQ(f.slot, CW_SLOT_NONE);
  EXPECT_EQ(f.native_slot, CW_SLOT_NONE);
  EXPECT_EQ(f.want_slot, CW_SLOT_NONE);
  EXPECT_EQ(f.flags, CW_STEER_NATIVE_NEW);
  EXPECT_EQ(f.flow.packets, 1u);
  EXPECT_EQ(f.flow.sport, 49999);
  EXPECT_EQ(f.flow.req.next, 8u);
  EXPECT_EQ(f.mark_round, 0u);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  auto ev = As<cw_ev_move>(events[0]);
  EXPECT_EQ(ev.type, CW_EV_FLOW);
  EXPECT_EQ(ev.pair, 5);
  EXPECT_EQ(ev.from_port, 49999);
  EXPECT_EQ(ev.to_port, 0);
  EXPECT_EQ(ev.to_slot, CW_SLOT_NONE);
  EXPECT_EQ(ev.reason, CW_MOVE_NONE);
  cw_flow_key key = Key();
  EXPECT_EQ(memcmp(&ev.key, &key, sizeof(key)), 0);
  Send(8);
  EXPECT_TRUE(rig_.Events().empty());
}

TEST_F(Egress, NativePortThatASlotProbesIsThatSlot) {
  Frame f = Data(0);
  f.sport = 50003;
  EXPECT_EQ(Send(f), 50003);
  EXPECT_EQ(rig_.CounterChanges(), "");
  EXPECT_EQ(Sent().native_slot, 3);
  EXPECT_EQ(Sent().slot, 3);
  EXPECT_EQ(Sent().flags, 0);
}

TEST_F(Egress, UnknownPeersAreCountedOncePerFlow) {
  Frame f = Data(0);
  f.daddr = 0x0a000063;
  Send(f);
  EXPECT_EQ(rig_.CounterChanges(), "peer_unknown=1");
  Send(f);
  EXPECT_EQ(rig_.CounterChanges(), "");
  EXPECT_EQ(rig_.Flow(FlowKeyV4(kOurs, f.daddr, kQpn)).value().packets, 2u);
}

TEST_F(Egress, NewFlowsAreSpreadOverLiveSlots) {
  Protect();
  rig_.ctl().assign_jiffies = 1;
  rig_.pair(5).assign_mask = 0x0d;
  Kill(3);
  std::map<uint16_t, int> ports;
  for (uint32_t qpn = 1; qpn <= 200; ++qpn) {
    uint16_t port = Send(0, qpn);
    ++ports[port];
    EXPECT_EQ(Send(1, qpn), port);  // and stay there
    cw_tx_flow f = Sent(qpn);
    EXPECT_EQ(f.port, port);
    EXPECT_EQ(f.slot, port - 50000);
    EXPECT_EQ(f.reason, CW_MOVE_ASSIGN);
  }
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_GT(ports[50000], 60);
  EXPECT_GT(ports[50002], 60);
  EXPECT_NE(rig_.CounterChanges().find("flows_assigned=200"), std::string::npos);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 200u);
  EXPECT_EQ(As<cw_ev_move>(events[0]).type, CW_EV_FLOW);
  EXPECT_EQ(As<cw_ev_move>(events[0]).reason, CW_MOVE_ASSIGN);
}

TEST_F(Egress, WhoIsNotAssigned) {
  rig_.ctl().assign_jiffies = 1;
  EXPECT_EQ(Send(0, 1), 49999);  // observe
  Protect();
  EXPECT_EQ(Send(1, 1), 49999);  // known since before
  rig_.ctl().assign_jiffies = 0;
  EXPECT_EQ(Send(0, 2), 49999);  // no assignment yet
  rig_.ctl().assign_jiffies = JiffiesNow(rig_) + 10000000;
  EXPECT_EQ(Send(0, 3), 49999);  // was there before
  rig_.ctl().assign_jiffies = 1;
  rig_.ctl().lease_jiffies = 1;
  EXPECT_EQ(Send(0, 4), 49999);  // the agent is gone
  rig_.ctl().lease_jiffies = 0;
  rig_.pair(5).assign_mask = 0;
  EXPECT_EQ(Send(0, 5), 49999);  // nothing to put it on
}

TEST_F(Egress, RewriteIsExactAtEveryLengthAndWithEveryTag) {
  Place(1);
  uint32_t psn = 1;
  for (size_t payload : {0, 4, 8, 60, 64, 252, 256, 1024, 2048, 3200}) {
    for (int tags = 0; tags <= 2; ++tags) {
      for (bool checksum : {false, true}) {
        Frame f = Data(psn++);
        f.payload = Bytes(payload, static_cast<uint8_t>(psn * 31));
        f.vlan_tags = tags;
        f.udp_checksum = checksum;
        f.tos = 0x6a;
        EXPECT_EQ(Send(f), 50001) << payload << " bytes, " << tags << " tags";
      }
    }
  }
  EXPECT_EQ(rig_.CounterChanges(), "");
}

TEST_F(Egress, AcknowledgementsAreSteeredLikeData) {
  Place(2);
  Frame f = Data(44);
  f.opcode = 0x11;
  f.ext = Aeth(0x1f);
  f.payload.clear();
  EXPECT_EQ(Send(f), 50002);
  EXPECT_EQ(Sent().flow.acks, 1u);
  EXPECT_EQ(Sent().flow.req.packets, 1u);
}

TEST_F(Egress, OffAndObserveAndALeaseThatRanOutLeaveNative) {
  Place(1);
  EXPECT_EQ(Send(1), 50001);
  rig_.ctl().mode = CW_MODE_OFF;
  EXPECT_EQ(Send(2), 49999);
  rig_.ctl().mode = CW_MODE_OBSERVE;
  EXPECT_EQ(Send(3), 49999);
  rig_.ctl().mode = CW_MODE_OPTIMIZE;
  EXPECT_EQ(Send(4), 50001);
  rig_.CounterChanges();
  rig_.ctl().lease_jiffies = JiffiesNow(rig_) - 1;
  EXPECT_EQ(Send(5), 49999);
  EXPECT_EQ(rig_.CounterChanges(), "native_unprobed=1 lease_expired=1");
  rig_.ctl().lease_jiffies = JiffiesNow(rig_) + 10000000;
  EXPECT_EQ(Send(6), 50001);
  EXPECT_EQ(Sent().flow.req.gaps, 0u);
  EXPECT_EQ(Sent().flow.packets, 7u);
}

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

TEST_F(Egress, OnlyAssignableLiveSlotsAreTargets) {
  Place(1);
  rig_.pair(5).assign_mask = 0x0b;
  Kill(0);
  Kill(1);
  EXPECT_EQ(Send(1), 50003);
  Kill(3);
  EXPECT_EQ(Send(2), 50003);  // slot 2 lives but may not be used
  EXPECT_EQ(rig_.CounterChanges(), "no_live_slot=1 moves_dead=1");
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

class SmallMap : public Egress {
 protected:
  SmallMap() : Egress({.max_tx_flows = 4}) {}
};

TEST_F(SmallMap, FlowsBeyondItStayNativeAndVerdictsStand) {
  Protect();
  rig_.ctl().assign_jiffies = 1;
  std::map<uint32_t, uint16_t> port;
  for (uint32_t qpn = 1; qpn <= 64; ++qpn) port[qpn] = Send(0, qpn);
  EXPECT_EQ(rig_.ctl().steer_full, 1u);
  int steered = 0;
  for (uint32_t qpn = 1; qpn <= 64; ++qpn) {
    EXPECT_EQ(Send(1, qpn), port[qpn]);
    steered += port[qpn] != 49999;
    // Each flow is recorded somewhere.
    EXPECT_NE(rig_.TxFlow(Key(qpn)).has_value(), rig_.Flow(Key(qpn)).has_value());
  }
  EXPECT_GE(steered, 4);
  EXPECT_LT(steered, 64);
  std::string changes = rig_.CounterChanges();
  EXPECT_EQ(changes, "steer_full=" + std::to_string(64 - steered) + " flows_assigned=" + std::to_string(steered));
}

class NoTable : public Egress {
 protected:
  NoTable() : Egress({.icrc_table = false}) {}
};

TEST_F(NoTable, NothingIsRewrittenWithoutTheIcrcTable) {
  Place(1);
  EXPECT_EQ(Send(1), 49999);
  EXPECT_EQ(rig_.CounterChanges(), "rewrite_failed=1");
}

class OwnProbes : public Egress {
 protected:
  Frame Request(uint8_t type, uint32_t round, uint8_t slot, uint16_t cookie = 5, uint32_t session = 77) {
    Frame f;
    f.saddr = kOurs;
    f.daddr = kPeer;
    f.opcode = CW_BTH_OPCODE;
    f.dqpn = CW_BTH_QPN;
    f.sport = static_cast<uint16_t>(50000 + slot);
    f.payload = Bytes(CW_PROBE_HDR_LEN, 0);
    Store32(f.payload, 0, CW_PROBE_MAGIC);
    f.payload[4] = CW_PROBE_VERSION;
    f.payload[5] = type;
    f.payload[6] = slot;
    Store32(f.payload, 8, session);
    Store32(f.payload, 12, round);
    Store16(f.payload, 16, cookie);
    return f;
  }
};

TEST_F(OwnProbes, RequestsLeaveUntouchedWithTheirTimeNoted) {
  uint64_t before = MonotonicNs();
  for (uint8_t slot = 0; slot < 4; ++slot) Send(Request(CW_PROBE_REQUEST, 9, slot));
  uint64_t after = MonotonicNs();
  EXPECT_EQ(rig_.CounterChanges(), "probe_sent=4");
  cw_probe_tx tx = rig_.ProbeTx(5);
  for (int slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(tx.round[slot][9 & 7], 9u);
    EXPECT_GE(tx.t1[slot][9 & 7], before);
    EXPECT_LE(tx.t1[slot][9 & 7], after);
  }
  EXPECT_EQ(rig_.pair(5).cur_round, 9u);
  EXPECT_EQ(rig_.pair(5).floor_round, 9u);
  EXPECT_EQ(rig_.pair(5).tx_session, 77u);
  EXPECT_EQ(rig_.pair(5).sent[9 & 7].mask, 15u);
  EXPECT_EQ(rig_.pair(5).round_ns, tx.t1[0][9 & 7]);
  EXPECT_FALSE(rig_.TxFlow(FlowKeyV4(kOurs, kPeer, CW_BTH_QPN)).has_value());
}

TEST_F(OwnProbes, PauseMovesTheFloorAndOnlyAPause) {
  rig_.pair(5).interval_ns = 4000000000u;
  Send(Request(CW_PROBE_REQUEST, 20, 0));
  Send(Request(CW_PROBE_REQUEST, 21, 0));
  EXPECT_EQ(rig_.pair(5).floor_round, 20u);
  rig_.pair(5).round_ns -= 11000000000u;
  Send(Request(CW_PROBE_REQUEST, 22, 0));
  EXPECT_EQ(rig_.pair(5).floor_round, 22u);
}

TEST_F(OwnProbes, NewSessionNumbersAfresh) {
  Send(Request(CW_PROBE_REQUEST, 5000, 0));
  rig_.pair(5).slot[0].progress_round = 5000;
  Send(Request(CW_PROBE_REQUEST, 1, 0, 5, 78));
  EXPECT_EQ(rig_.pair(5).cur_round, 1u);
  EXPECT_EQ(rig_.pair(5).floor_round, 1u);
  EXPECT_EQ(rig_.pair(5).slot[0].progress_round, 0u);
}

TEST_F(OwnProbes, OfNoPairAreNotNoted) {
  Send(Request(CW_PROBE_REQUEST, 9, 0, 4));
  Send(Request(CW_PROBE_REQUEST, 9, 0, 999));
  EXPECT_EQ(rig_.CounterChanges(), "probe_unknown_peer=2");
  EXPECT_EQ(rig_.pair(4).cur_round, 0u);
}

TEST_F(OwnProbes, TracesAndMalformedOnesPass) {
  Send(Request(CW_PROBE_TRACE, 9, 0));
  EXPECT_EQ(rig_.CounterChanges(), "");
  Frame f = Request(CW_PROBE_REQUEST, 9, 0);
  f.payload[0] = 0;
  Send(f);
  EXPECT_EQ(rig_.CounterChanges(), "probe_malformed=1");
  EXPECT_EQ(rig_.pair(5).cur_round, 0u);
}

}  // namespace
}  // namespace cw::test
