// SPDX-License-Identifier: Apache-2.0
// XDP ingress on data packets: whatever comes in goes on untouched, and what was seen stands in the maps.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "bpf/psn.h"
#include "tests/bpf/prog_rig.h"

namespace cw::test {
namespace {

// Length of what follows the IP header without options.
void SetIpPayload(Bytes& frame, uint16_t len) {
  if (kIp6)
    Store16(frame, 14 + 4, len);
  else
    Store16(frame, 14 + 2, static_cast<uint16_t>(20 + len));
}

class Ingress : public ::testing::Test {
 protected:
  // Runs the frame, which must pass as it is. Returns the counters that moved.
  std::string Pass(const Bytes& frame) {
    RunResult r = rig_.Xdp(frame);
    EXPECT_EQ(r.verdict, XDP_PASS);
    EXPECT_EQ(r.frame, frame);
    return rig_.CounterChanges();
  }
  std::string Pass(const Frame& frame) { return Pass(Build(frame)); }

  ProgRig rig_;
};

TEST_F(Ingress, EveryExitPassesTheFrameAndIsCountedUnderItsName) {
  auto with = [](auto change) {
    Frame f;
    change(f);
    return f;
  };
  EXPECT_EQ(Pass(with([](Frame& f) { f.ethertype = 0x8915; })), "rocev1_frames=1");
  EXPECT_EQ(Pass(with([](Frame& f) { f.vlan_tags = 3; })), "vlan_too_deep=1");
  EXPECT_EQ(Pass(with([](Frame& f) { f.ip_len_delta = 4; })), "ip_truncated=1");
  EXPECT_EQ(Pass(with([](Frame& f) { f.udp_len_delta = -8; })), "udp_length_bad=1");
  EXPECT_EQ(Pass(with([](Frame& f) { f.bth_flags = 0x43; })), "bth_version=1");
  EXPECT_EQ(Pass(with([](Frame& f) {
              f.ext = Bytes(8, 0);
              f.payload.clear();
            })),
            "ext_truncated=1");
  EXPECT_EQ(Pass(with([](Frame& f) { f.opcode = 0xe0; })), "opcode_unknown=1");
  Bytes short_vlan = FromHex("020000000002 020000000001 8100 0064");
  EXPECT_EQ(Pass(short_vlan), "eth_truncated=1");
  Bytes no_bth = Build(Frame{});
  no_bth.resize(14 + kIpLen + 8 + 8);
  SetIpPayload(no_bth, 16);
  Store16(no_bth, 14 + kIpLen + 4, 16);
  EXPECT_EQ(Pass(no_bth), "bth_truncated=1");
  Bytes no_udp = Build(Frame{});
  no_udp.resize(14 + kIpLen + 4);
  SetIpPayload(no_udp, 4);
  EXPECT_EQ(Pass(no_udp), "udp_truncated=1");
}

TEST_F(Ingress, WhatComesBetweenIpAndUdpPassesAndIsCounted) {
  Frame f;
  f.ip6 = false;
  f.frag = 0x2000;
  EXPECT_EQ(Pass(f), "ip_fragment=1");
  f.frag = 100;
  EXPECT_EQ(Pass(f), "ip_fragment=1");
  f.frag = 0;
  f.version_ihl = 0x46;
  f.ip_options = Bytes(4, 1);
  EXPECT_EQ(Pass(f), "ip_options=1");
  f = Frame{.ip6 = true};
  for (uint8_t kind : {0, 43, 60}) {
    f.ip6_next = kind;
    f.ip6_extension = FromHex("11 00 010400000000");
    EXPECT_EQ(Pass(f), "ip6_extension=1") << int{kind};
    f.ip6_extension = FromHex("11 01 010c000000000000000000000000");
    EXPECT_EQ(Pass(f), "ip6_extension=1") << int{kind};
  }
  f.ip6_next = 44;
  f.ip6_extension = FromHex("11 00 0001 00000007");
  EXPECT_EQ(Pass(f), "ip_fragment=1");
  f.ip6_next = 60;
  f.ip6_extension = FromHex("06 00 010400000000");
  EXPECT_EQ(Pass(f), "") << "TCP";
  f.ip6_extension = FromHex("11 00 010400000000");
  f.dport = 53;
  EXPECT_EQ(Pass(f), "");
}

TEST_F(Ingress, WhatIsNotRoceLeavesNoTrace) {
  Frame f;
  f.protocol = 6;
  EXPECT_EQ(Pass(f), "");
  f.protocol = 17;
  f.dport = 53;
  EXPECT_EQ(Pass(f), "");
  f.ethertype = 0x0806;
  EXPECT_EQ(Pass(f), "");
  EXPECT_TRUE(rig_.Probes().empty());
}

TEST_F(Ingress, FlowIsRecordedUnderUpToTwoVlanTags) {
  Frame f;
  f.opcode = 0x07;
  f.payload = Bytes(1024, 1);
  for (uint32_t i = 0; i < 9; ++i) {
    f.vlan_tags = static_cast<int>(i % 3);
    f.psn = 100 + i;
    f.tos = i == 4 ? 0x6b : 0x6a;
    EXPECT_EQ(Pass(f), "");
  }
  cw_flow flow = rig_.Flow(FlowKeyOf(f.saddr, f.daddr, f.dqpn)).value();
  EXPECT_EQ(flow.packets, 9u);
  EXPECT_EQ(flow.bytes, 9u * (kIpLen + 8 + 12 + 1024 + 4));
  EXPECT_EQ(flow.ce, 1u);
  EXPECT_EQ(flow.mtu, 1024u);
  EXPECT_EQ(flow.sport, 49152);
  EXPECT_EQ(flow.tos, 0x6a);
  EXPECT_EQ(flow.transport, 0);
  EXPECT_EQ(flow.req.packets, 9u);
  EXPECT_EQ(flow.req.next, 109u);
  EXPECT_EQ(flow.req.gaps, 0u);
  EXPECT_GT(flow.first_seen_jiffies, 0u);
  EXPECT_GE(flow.last_seen_jiffies, flow.first_seen_jiffies);
}

TEST_F(Ingress, JumboFrameInFragments) {
  Frame f;
  f.opcode = 0x07;
  f.payload = Bytes(8192, 1);
  EXPECT_EQ(Pass(f), "");
  EXPECT_EQ(rig_.Flow(FlowKeyOf(f.saddr, f.daddr, f.dqpn)).value().mtu, 8192u);
}

TEST_F(Ingress, SamplesAreThoseOfThePureFunction) {
  rig_.ctl().sample_level_rx = 4;
  Frame f;
  f.opcode = 0x07;
  uint32_t expected = 0;
  uint64_t before = MonotonicNs();
  for (f.psn = 0; f.psn < 600; ++f.psn) {
    Pass(f);
    expected += static_cast<uint32_t>(cw_psn_sampled(f.psn, 4));
  }
  ASSERT_GT(expected, 10u);
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), expected);
  uint32_t last = 0;
  for (const Bytes& record : records) {
    auto s = As<cw_ev_sample>(record);
    EXPECT_EQ(record.size(), sizeof(s));
    EXPECT_EQ(s.type, CW_EV_SAMPLE);
    EXPECT_TRUE(cw_psn_sampled(s.psn, 4));
    EXPECT_TRUE(last == 0 || s.psn > last);
    last = s.psn;
    EXPECT_FALSE(s.is_tx || s.is_resp || s.duplicate);
    EXPECT_EQ(s.slot, CW_SLOT_NONE);
    EXPECT_EQ(s.pair, CW_PAIR_NONE);
    EXPECT_EQ(s.port, 49152);
    cw_flow_key key = FlowKeyOf(f.saddr, f.daddr, f.dqpn);
    EXPECT_EQ(memcmp(&s.key, &key, sizeof(key)), 0);
    EXPECT_GE(s.ns, before);
    EXPECT_LE(s.ns, MonotonicNs());
  }
  // Once more: duplicates, and marked so. Acknowledgements are not sampled.
  f.psn = last;
  Pass(f);
  f.opcode = 0x11;
  f.payload.clear();
  Pass(f);
  records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(As<cw_ev_sample>(records[0]).duplicate);
}

TEST_F(Ingress, ReadResponsesAreSampledInTheirOwnSequence) {
  rig_.ctl().sample_level_rx = 0;
  Frame f;
  f.opcode = 0x0e;
  f.psn = 5;
  Pass(f);
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(As<cw_ev_sample>(records[0]).is_resp);
}

TEST_F(Ingress, FullRingLosesSamplesAndNothingElse) {
  rig_.ctl().sample_level_rx = 0;
  Bytes frame = Build(Frame{});
  rig_.XdpCost(frame, 20000);
  EXPECT_EQ(rig_.CounterChanges().rfind("probe_ring_full=", 0), 0u);
  EXPECT_EQ(rig_.Flow(FlowKeyOf(Frame{}.saddr, Frame{}.daddr, Frame{}.dqpn)).value().packets, 20000u);
}

// The peer's acknowledgements travel to our QPN; the agent has told which flow of ours they belong to.
class Acknowledgements : public Ingress {
 protected:
  static constexpr uint32_t kOurs = 0x0a000001, kPeer = 0x0a000002, kOurQpn = 0x21, kPeerQpn = 0x42;
  static constexpr int kSlot = 2;

  Acknowledgements() {
    rig_.AddPair(0, kOurs, kPeer, 4);
    rig_.pair(0).cur_round = 500;
    cw_flow received = {};
    received.peer_qpn = kPeerQpn;
    rig_.SetFlow(FlowKeyOf(kPeer, kOurs, kOurQpn), received);
    cw_tx_flow sent = {};
    sent.flow.req.next = 1000;
    sent.flow.req.seen = 1;
    sent.mark_psn = 900;
    sent.mark_round = 480;
    sent.mark_slot = kSlot;
    SetSent(sent);
  }
  void SetSent(const cw_tx_flow& f) { rig_.SetTxFlow(FlowKeyOf(kOurs, kPeer, kPeerQpn), f); }
  cw_tx_flow Sent() { return rig_.TxFlow(FlowKeyOf(kOurs, kPeer, kPeerQpn)).value(); }
  void NoNakYet() {
    cw_tx_flow f = Sent();
    f.nak_jiffies = static_cast<uint16_t>(JiffiesNow(rig_) - 1000);
    SetSent(f);
  }
  void Acknowledge(uint32_t psn, uint8_t syndrome, uint8_t opcode = 0x11) {
    Frame f;
    f.saddr = kPeer;
    f.daddr = kOurs;
    f.dqpn = kOurQpn;
    f.opcode = opcode;
    f.psn = psn;
    f.payload.clear();
    f.ext = Aeth(syndrome);
    EXPECT_EQ(Pass(f), "");
  }
};

TEST_F(Acknowledgements, AdvanceAndResolveTheMark) {
  Acknowledge(898, 0x1f);
  EXPECT_EQ(Sent().acked_psn, 899u);
  EXPECT_EQ(Sent().acked_valid, 1u);
  EXPECT_EQ(Sent().mark_round, 480u);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 0u);
  Acknowledge(900, 0x60);  // 900 was refused: it did not arrive, what precedes it did
  EXPECT_EQ(Sent().acked_psn, 900u);
  EXPECT_EQ(Sent().mark_round, 480u);
  Acknowledge(950, 0x1f);
  EXPECT_EQ(Sent().acked_psn, 951u);
  EXPECT_EQ(Sent().mark_round, 0u);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 480u);
  Acknowledge(940, 0x1f);  // late
  EXPECT_EQ(Sent().acked_psn, 951u);
}

// For flows that look after themselves (bpf/blind.h).
TEST_F(Acknowledgements, EachEndsASilenceAndLongOnesAreRemembered) {
  const auto now = [&] { return static_cast<uint16_t>(JiffiesNow(rig_)); };
  cw_tx_flow f = Sent();
  f.heard_jiffies = static_cast<uint16_t>(now() - 10);
  f.blind_moves = 3;
  SetSent(f);
  Acknowledge(940, 0x1f);
  EXPECT_EQ(Sent().heard_gap, 0) << "since when the first was waited for is not known";
  f = Sent();
  f.heard_jiffies = static_cast<uint16_t>(now() - 10);
  SetSent(f);
  Acknowledge(950, 0x1f);
  EXPECT_LE(static_cast<uint16_t>(now() - Sent().heard_jiffies), 100);
  EXPECT_GE(Sent().heard_gap, 10 * 64);
  EXPECT_EQ(Sent().blind_moves, 0);
  for (int i = 0; i < 1000; ++i) Acknowledge(940, 0x1f);  // nothing new in them
  EXPECT_GE(Sent().heard_gap, 10 * 64) << "one answer in sixteen forgets";
  for (int i = 0; i < 400; ++i) Acknowledge(943, 0x1f);
  EXPECT_LE(Sent().heard_gap, 5 * 64) << "forgotten";
}

// Nobody probes, and the peer sends data again that had arrived.
class MissedAnswers : public Acknowledgements {
 protected:
  void SetUp() override {
    rig_.ctl().blind_jiffies = 50;
    rig_.ctl().alone = 1;
    rig_.pair(0).round_jiffies = JiffiesNow(rig_) - 1000;
    NoNakYet();
  }
  void PeerSends(uint32_t psn) {
    Frame data;
    data.saddr = kPeer;
    data.daddr = kOurs;
    data.dqpn = kOurQpn;
    data.opcode = 0x07;
    data.payload = Bytes(256, 1);
    data.psn = psn;
    Pass(data);
  }
  // The first sign was so long ago, and this side's last packet so long.
  void Since(int doubted, int sent) {
    cw_tx_flow f = Sent();
    f.doubt_jiffies = static_cast<uint16_t>(JiffiesNow(rig_) - static_cast<uint64_t>(doubted));
    f.flow.last_seen_jiffies = JiffiesNow(rig_) - static_cast<uint64_t>(sent);
    SetSent(f);
  }
  int Missed() { return Sent().unanswered & 3; }
};

TEST_F(MissedAnswers, TwiceMeansThatTheyDieWhereNobodyProbes) {
  rig_.pair(0).round_jiffies = JiffiesNow(rig_);
  for (int i = 0; i < 2; ++i) PeerSends(0);
  EXPECT_EQ(Missed(), 0) << "somebody probes";
  rig_.pair(0).round_jiffies = JiffiesNow(rig_) - 1000;
  rig_.ctl().alone = 0;
  for (int i = 0; i < 2; ++i) PeerSends(0);
  EXPECT_EQ(Missed(), 0) << "the agent is there";
  rig_.ctl().alone = 1;
  PeerSends(1);
  EXPECT_EQ(Missed(), 0);
  for (int i = 0; i < 2; ++i) PeerSends(1);
  EXPECT_EQ(Missed(), 1) << "all of a burst is sent again once";
  Since(5000, 1);
  PeerSends(1);
  EXPECT_EQ(Missed(), 1) << "that was long ago";
  Since(20, 1);
  PeerSends(1);
  EXPECT_EQ(Missed(), 2);
}

TEST_F(MissedAnswers, WhoAsksForMoreHasGotSome) {
  PeerSends(0);
  PeerSends(1);
  for (uint32_t psn = 1; psn < 100; ++psn) {
    PeerSends(psn);
    EXPECT_EQ(Missed(), 1) << psn;
    Since(20, 1);
    PeerSends(psn + 1);
  }
  PeerSends(100);
  Since(20, 1);
  PeerSends(100);
  EXPECT_EQ(Missed(), 2);
}

TEST_F(MissedAnswers, WhatWasNotSentSinceHasNotDied) {
  for (int i = 0; i < 2; ++i) PeerSends(0);
  Since(20, 40);
  PeerSends(0);
  EXPECT_EQ(Missed(), 1);
  Since(20, 20);
  PeerSends(0);
  EXPECT_EQ(Missed(), 2);
}

TEST_F(MissedAnswers, WhatThisSideAskedForIsNoSign) {
  PeerSends(0);
  cw_tx_flow f = Sent();
  f.nak_jiffies = static_cast<uint16_t>(JiffiesNow(rig_));
  SetSent(f);
  PeerSends(0);
  EXPECT_EQ(Missed(), 0);
  NoNakYet();
  PeerSends(0);
  EXPECT_EQ(Missed(), 1);
}

TEST_F(Acknowledgements, NaksAreRemembered) {
  for (const uint8_t syndrome : {0x60, 0x2c}) {  // PSN sequence, receiver not ready
    NoNakYet();
    Acknowledge(930, 0x1f);
    EXPECT_GE(static_cast<uint16_t>(JiffiesNow(rig_) - Sent().nak_jiffies), 1000);
    Acknowledge(940, syndrome);
    EXPECT_LE(static_cast<uint16_t>(JiffiesNow(rig_) - Sent().nak_jiffies), 100);
  }
}

TEST_F(Acknowledgements, ReadResponsesAcknowledgeToo) {
  Acknowledge(999, 0x1f, 0x10);
  EXPECT_EQ(Sent().acked_psn, 1000u);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 480u);
}

TEST_F(Acknowledgements, OfWhatWasNeverSentProveNothing) {
  Acknowledge(1000, 0x1f);
  EXPECT_EQ(Sent().acked_valid, 0u);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 0u);
}

TEST_F(Acknowledgements, OldMarksProveNothing) {
  cw_tx_flow f = Sent();
  f.mark_round = 400;
  SetSent(f);
  Acknowledge(950, 0x1f);
  EXPECT_EQ(Sent().mark_round, 0u);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 0u);
  f = Sent();
  f.mark_round = 510;  // of another numbering: ahead of the present round
  SetSent(f);
  Acknowledge(960, 0x1f);
  EXPECT_EQ(rig_.pair(0).slot[kSlot].acked_round, 0u);
}

TEST_F(Acknowledgements, NoProgressWithoutTheAgentsWord) {
  rig_.SetFlow(FlowKeyOf(kPeer, kOurs, kOurQpn), cw_flow{});
  Acknowledge(950, 0x1f);
  EXPECT_EQ(Sent().acked_valid, 0u);
}

}  // namespace
}  // namespace cw::test
