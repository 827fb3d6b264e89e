// SPDX-License-Identifier: Apache-2.0
// tc egress, byte for byte: what is steered leaves with another source port and the right ICRC, all else as it came.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "maps/siphash.h"
#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

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
  EXPECT_EQ(with([](Frame& f) {
              f.ip6 = false;
              f.frag = 0x2000;
            }),
            "ip_fragment=1");
  EXPECT_EQ(with([](Frame& f) { f.udp_len_delta = 4; }), "udp_length_bad=1");
  EXPECT_EQ(with([](Frame& f) { f.bth_flags = 0x42; }), "bth_version=1");
  EXPECT_EQ(with([](Frame& f) {
              f.ip6 = false;
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
  EXPECT_EQ(rig_.Flow(FlowKeyOf(kOurs, f.daddr, kQpn)).value().packets, 2u);
}

TEST_F(Egress, NewFlowsTakeLiveSlotsInTurn) {
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
  EXPECT_EQ(ports[50000], 100);
  EXPECT_EQ(ports[50002], 100);
  EXPECT_NE(rig_.CounterChanges().find("flows_assigned=200"), std::string::npos);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 200u);
  EXPECT_EQ(As<cw_ev_move>(events[0]).type, CW_EV_FLOW);
  EXPECT_EQ(As<cw_ev_move>(events[0]).reason, CW_MOVE_ASSIGN);
}

// Hosts whose addresses follow each other, each with a dataplane of its own, so each with turns of its own.
TEST_F(Egress, FewFlowsOfNeighboursDoNotOverlap) {
  Protect();
  rig_.ctl().assign_jiffies = 1;
  struct Rack {
    int slots, hosts, flows;  // flows: of each host
  };
  for (const Rack& rack : {Rack{8, 4, 2}, Rack{8, 2, 4}, Rack{8, 8, 1}, Rack{4, 4, 2}, Rack{6, 3, 2}, Rack{5, 1, 5},
                           Rack{6, 1, 6}, Rack{7, 1, 7}, Rack{8, 1, 8}, Rack{16, 4, 4}}) {
    std::map<uint16_t, int> ports;
    for (int host = 0; host < rack.hosts; ++host) {
      const uint32_t local = kOurs + 10 + static_cast<uint32_t>(host);
      rig_.AddPair(6, local, kPeer, rack.slots);
      rig_.ctl().turn = 0;
      for (int flow = 0; flow < rack.flows; ++flow) {
        Frame frame = Data(0, static_cast<uint32_t>(0x10000 * rack.slots + 0x100 * rack.hosts + 0x10 * host + flow));
        frame.saddr = local;
        ++ports[Send(frame)];
      }
    }
    const int most =
        std::max_element(ports.begin(), ports.end(), [](auto& a, auto& b) { return a.second < b.second; })->second;
    EXPECT_EQ(most, (rack.hosts * rack.flows + rack.slots - 1) / rack.slots)
        << rack.slots << " slots, " << rack.hosts << " hosts with " << rack.flows << " flows";
  }
}

// Answers and flows without a choice would otherwise bring two flows of data onto one path.
TEST_F(Egress, AnswersAndFlowsWithoutAChoiceTakeNoTurn) {
  Protect();
  rig_.ctl().assign_jiffies = 1;
  rig_.AddPair(6, kOurs, 0x0a000003, 1);
  std::map<uint16_t, int> ports;
  for (uint32_t qpn = 1; qpn <= 4; ++qpn) {
    ++ports[Send(0, qpn)];
    Frame near = Data(0, 1000 + qpn);
    near.daddr = 0x0a000003;
    EXPECT_EQ(Send(near), 50000);
    Frame ack = Data(0, 2000 + qpn);
    ack.opcode = 0x11;
    ack.ext = Aeth(0);
    ack.payload.clear();
    EXPECT_GE(Send(ack), 50000) << "placed all the same";
  }
  EXPECT_EQ(ports.size(), 4u) << "four flows on four paths";
  EXPECT_EQ(rig_.ctl().turn, 4u);
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

// The last patch of the ICRC is remembered; another length, native port or path asks for another one.
TEST_F(Egress, ARememberedPatchIsUsedForItsOwnLengthAndPortsOnly) {
  Place(1);
  uint32_t psn = 0;
  uint64_t last = 0;
  for (uint8_t slot : {1, 2}) {
    Edit([&](cw_tx_flow& f) {
      f.slot = slot;
      f.port = rig_.pair(5).slot[slot].port;
    });
    for (uint16_t native : {49999, 41000}) {
      for (size_t length : {256, 256, 64, 64, 256}) {
        Frame f = Data(++psn);
        f.sport = native;
        f.payload = Bytes(length, static_cast<uint8_t>(psn));
        EXPECT_EQ(Send(f), 50000 + slot);  // and looks at the ICRC
      }
      EXPECT_NE(Sent().patch, last);
      last = Sent().patch;
    }
  }
  // Used, indeed: a wrong one would be written.
  Edit([](cw_tx_flow& f) { f.patch ^= uint64_t{1} << 40; });
  Frame f = Data(++psn);
  f.sport = 41000;
  const RunResult r = rig_.Tc(Build(f));
  EXPECT_NE(StoredIcrc(r.frame), Icrc(r.frame));
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

// What an operator's proof of an emergency off rests on.
TEST_F(Egress, CountsThePacketsThatItGivesAnotherPort) {
  const uint64_t before = rig_.Rewritten();
  Send(1);
  EXPECT_EQ(rig_.Rewritten(), before);
  Place(1);
  EXPECT_EQ(Send(2), 50001);
  EXPECT_EQ(Send(3), 50001);
  EXPECT_EQ(rig_.Rewritten(), before + 2);
  rig_.ctl().mode = CW_MODE_OFF;
  EXPECT_EQ(Send(4), 49999);
  EXPECT_EQ(rig_.Rewritten(), before + 2);
}

TEST_F(Egress, OffAndObserveLeaveNative) {
  Place(1);
  EXPECT_EQ(Send(1), 50001);
  rig_.ctl().mode = CW_MODE_OFF;
  EXPECT_EQ(Send(2), 49999);
  rig_.ctl().mode = CW_MODE_OBSERVE;
  EXPECT_EQ(Send(3), 49999);
  rig_.ctl().mode = CW_MODE_OPTIMIZE;
  EXPECT_EQ(Send(4), 50001);
  rig_.CounterChanges();
  rig_.ctl().lease_jiffies = JiffiesNow(rig_) + 10000000;
  EXPECT_EQ(Send(5), 50001);
  EXPECT_EQ(Sent().flow.req.gaps, 0u);
  EXPECT_EQ(Sent().flow.packets, 6u);
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
    Sign(f);
    return f;
  }
  // With our key of the pair.
  void Sign(Frame& f) {
    __u64 words[CW_PROBE_HDR_LEN / 8];
    memcpy(words, f.payload.data(), sizeof(words));
    const __u64 mac = cw_siphash24(rig_.keys(5).tx[0], words, CW_PROBE_MAC_OFFSET / 8);
    memcpy(f.payload.data() + CW_PROBE_MAC_OFFSET, &mac, sizeof(mac));
  }
};

TEST_F(OwnProbes, RequestsLeaveUntouchedWithTheirTimeNoted) {
  uint64_t before = MonotonicNs();
  for (uint8_t slot = 0; slot < 4; ++slot) Send(Request(CW_PROBE_REQUEST, 9, slot));
  uint64_t after = MonotonicNs();
  EXPECT_EQ(rig_.CounterChanges(), "probe_sent=4");
  cw_probe_tx tx = rig_.ProbeTx(5);
  for (int slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(tx.round[slot][9 % CW_TX_ROUNDS], 9u);
    EXPECT_GE(tx.t1[slot][9 % CW_TX_ROUNDS], before);
    EXPECT_LE(tx.t1[slot][9 % CW_TX_ROUNDS], after);
  }
  EXPECT_EQ(rig_.pair(5).cur_round, 9u);
  EXPECT_EQ(rig_.pair(5).floor_round, 9u);
  EXPECT_EQ(rig_.pair(5).tx_session, 77u);
  EXPECT_EQ(rig_.pair(5).sent[9 & 7].mask, 15u);
  EXPECT_EQ(rig_.pair(5).round_ns, tx.t1[0][9 % CW_TX_ROUNDS]);
  EXPECT_FALSE(rig_.TxFlow(FlowKeyOf(kOurs, kPeer, CW_BTH_QPN)).has_value());
}

// To a peer whose NIC has queue pairs only: no flow is made of it, nothing moves it.
TEST_F(OwnProbes, AsUdSendsLeaveUntouched) {
  Protect();
  Frame f = Request(CW_PROBE_REQUEST, 9, 1);
  f.opcode = CW_UD_OPCODE;
  f.dqpn = kQpn;
  f.ext = Bytes(CW_DETH_LEN, 0);
  Store32(f.ext, 0, CW_UD_QKEY);
  Store32(f.ext, 4, CW_BTH_QPN);
  Kill(1);
  EXPECT_EQ(Send(f), 50001) << "the path that it asks after";
  EXPECT_EQ(rig_.CounterChanges(), "");
  EXPECT_FALSE(rig_.TxFlow(FlowKeyOf(kOurs, kPeer, kQpn)));
  EXPECT_EQ(rig_.ProbeTx(5).t1[1][9 % CW_TX_ROUNDS], 0u) << "the agent showed it before";
  Store32(f.ext, 4, CW_BTH_QPN + 1);
  Send(f);
  const auto flow = rig_.TxFlow(FlowKeyOf(kOurs, kPeer, kQpn));
  ASSERT_TRUE(flow) << "somebody else's";
  EXPECT_EQ(flow->flow.peer_qpn, CW_BTH_QPN + 1u) << "whose it is the packet alone tells";
}

// Any process may send UDP to RoCE's port: its bytes may neither set a time nor end a session.
TEST_F(OwnProbes, ForgedOnesAreNotNoted) {
  Send(Request(CW_PROBE_REQUEST, 9, 0));
  const uint64_t t1 = rig_.ProbeTx(5).t1[0][9 % CW_TX_ROUNDS];
  EXPECT_EQ(rig_.CounterChanges(), "probe_sent=1");
  Frame forged = Request(CW_PROBE_REQUEST, 9, 0);
  forged.payload[CW_PROBE_MAC_OFFSET] ^= 1;
  Send(forged);
  forged = Request(CW_PROBE_REQUEST, 10, 1, 5, 78);
  memset(forged.payload.data() + CW_PROBE_MAC_OFFSET, 0, 8);
  Send(forged);
  forged = Request(CW_PROBE_REQUEST, 10, 1);
  forged.payload[18] = 1;  // a key that is not live
  Send(forged);
  EXPECT_EQ(rig_.CounterChanges(), "probe_bad_mac=3");
  EXPECT_EQ(rig_.ProbeTx(5).t1[0][9 % CW_TX_ROUNDS], t1);
  EXPECT_EQ(rig_.pair(5).cur_round, 9u);
  EXPECT_EQ(rig_.pair(5).tx_session, 77u);
  EXPECT_EQ(rig_.pair(5).sent[9 & 7].mask, 1u);
  EXPECT_EQ(rig_.pair(5).sent[10 & 7].mask, 0u);
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
  Frame other = Request(CW_PROBE_TRACE, 9, 0);
  other.dqpn = CW_TEST_QPN_TOP << CW_TEST_QPN_SHIFT | 77;
  Send(other);
  EXPECT_EQ(rig_.CounterChanges(), "") << "no flow";
  EXPECT_FALSE(rig_.TxFlow(Key(other.dqpn)).has_value());
  Frame f = Request(CW_PROBE_REQUEST, 9, 0);
  f.payload[0] = 0;
  Send(f);
  EXPECT_EQ(rig_.CounterChanges(), "probe_malformed=1");
  EXPECT_EQ(rig_.pair(5).cur_round, 0u);
}

}  // namespace
}  // namespace cw::test
