// SPDX-License-Identifier: Apache-2.0
// Probes at ingress, byte for byte: requests turned round, messages handed over, all else refused.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <set>

#include "tests/bpf/probe_fixture.h"

namespace cw::test {
namespace {

void TurnIp4(Bytes& b) {
  const size_t ip = IpOffset(b);
  std::swap_ranges(b.begin() + ip + 12, b.begin() + ip + 16, b.begin() + ip + 16);
  Store16(b, ip + 4, 0);
  b[ip + 8] = 64;
  if ((b[ip + 1] & 3) == 3) b[ip + 1] ^= 1;
  Store16(b, ip + 10, 0);
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2) sum += Load16(b, ip + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  Store16(b, ip + 10, static_cast<uint16_t>(~sum));
}

void TurnIp6(Bytes& b, uint16_t label) {
  const size_t ip = IpOffset(b);
  std::swap_ranges(b.begin() + ip + 8, b.begin() + ip + 24, b.begin() + ip + 24);
  b[ip + 7] = 64;
  if ((b[ip + 1] >> 4 & 3) == 3) b[ip + 1] ^= 0x10;
  b[ip + 1] &= 0xf0;
  Store16(b, ip + 2, label);
}

// The reply to a request, in full, given the two times.
Bytes ExpectedReply(const Bytes& request, uint8_t rslot, uint16_t port, const uint16_t* bitmap, uint32_t session,
                    uint64_t t2, uint64_t t3, const __u64* key, uint8_t key_id) {
  Bytes b = request;
  const size_t udp = UdpOffset(b), hdr = udp + 20;
  const int ecn = (kIp6 ? b[IpOffset(b) + 1] >> 4 : b[IpOffset(b) + 1]) & 3;
  std::swap_ranges(b.begin(), b.begin() + 6, b.begin() + 6);
  if (kIp6)
    TurnIp6(b, port);
  else
    TurnIp4(b);
  Store16(b, udp, port);
  Store16(b, udp + 6, 0);
  b[hdr + 5] = CW_PROBE_REPLY;
  b[hdr + 7] = rslot;
  b[hdr + 18] = key_id;
  b[hdr + 19] = static_cast<uint8_t>((ecn != 0 ? CW_PROBE_ECT : 0) | (ecn == 3 ? CW_PROBE_CE : 0));
  Store32(b, hdr + 20, session);
  Store64(b, hdr + 32, t2);
  Store64(b, hdr + 40, t3);
  for (size_t i = 0; i < 8; ++i) Store16(b, hdr + 48 + 2 * i, bitmap[i]);
  uint64_t mac = Mac(key, b, hdr, CW_PROBE_MAC_OFFSET);
  memcpy(b.data() + hdr + CW_PROBE_MAC_OFFSET, &mac, sizeof(mac));
  return b;
}

TEST_F(Probes, RequestIsTurnedRound) {
  for (int tags = 0; tags <= 2; ++tags) {
    Probe p;
    p.round = 101 + static_cast<uint32_t>(tags);
    Frame f = FrameOf(p);
    f.vlan_tags = tags;
    f.udp_checksum = tags == 1;
    f.tos = tags == 2 ? 0x6b : 0x6a;
    Bytes request = test::Build(f);
    uint64_t before = MonotonicNs();
    EXPECT_EQ(Run(request, XDP_TX), tags == 0 ? "probe_requests=1 peer_restarts=1" : "probe_requests=1");
    uint64_t after = MonotonicNs();
    ASSERT_EQ(last_.frame.size(), request.size());
    size_t hdr = UdpOffset(request) + 20;
    uint64_t t2 = Load64(last_.frame, hdr + 32), t3 = Load64(last_.frame, hdr + 40);
    EXPECT_GE(t2, before);
    EXPECT_GE(t3, t2);
    EXPECT_LE(t3, after);
    uint8_t rslot = static_cast<uint8_t>((p.slot + p.round) % 4);
    uint16_t bitmap[8] = {};
    for (int i = 0; i <= tags; ++i) bitmap[i] = 1u << p.slot;
    EXPECT_EQ(last_.frame,
              ExpectedReply(request, rslot, static_cast<uint16_t>(50000 + rslot), bitmap, 77, t2, t3, keys_.tx[0], 0));
    EXPECT_TRUE(IpChecksumOk(last_.frame));
  }
}

// Not ECN-capable, ECT(1), ECT(0), CE.
TEST_F(Probes, ReplyTellsHowTheRequestWasMarked) {
  const int want[] = {0, CW_PROBE_ECT, CW_PROBE_ECT, CW_PROBE_ECT | CW_PROBE_CE};
  Probe p;
  for (uint8_t ecn = 0; ecn < 4; ++ecn) {
    ++p.round;
    p.flags = 0xff;  // of a request: nothing
    Frame f = FrameOf(p);
    f.tos = 0x68 | ecn;
    Run(test::Build(f), XDP_TX);
    EXPECT_EQ(last_.frame[kHdr + 19], want[ecn]) << int{ecn};
  }
}

TEST_F(Probes, ReplyTellsWhatArrivedInEightRounds) {
  Probe p;
  uint16_t want[8] = {};
  for (p.round = 1; p.round <= 40; ++p.round) {
    for (int i = 7; i > 0; --i) want[i] = want[i - 1];
    want[0] = 0;
    for (uint8_t slot = 0; slot < 16; ++slot) {
      if ((p.round * 7 + slot * 5) % 11 < 3) continue;  // some do not arrive
      p.slot = slot;
      Run(p, XDP_TX);
      want[0] |= static_cast<uint16_t>(1u << slot);
      for (size_t i = 0; i < 8; ++i) ASSERT_EQ(Load16(last_.frame, kHdr + 48 + 2 * i), want[i]) << p.round;
    }
  }
}

TEST_F(Probes, RepliesRotateOverOurLiveSlots) {
  rig_.pair(3).live_mask = 0x0d;  // slot 1 is dead
  std::set<int> used;
  Probe p;
  for (p.round = 1; p.round <= 6; ++p.round) {
    Run(p, XDP_TX);
    int rslot = last_.frame[kHdr + 7];
    EXPECT_EQ(Load16(last_.frame, 14 + kIpLen), 50000 + rslot);
    used.insert(rslot);
  }
  EXPECT_EQ(used, (std::set<int>{0, 2, 3}));
  rig_.pair(3).live_mask = 0;
  Run(p, XDP_TX);
  EXPECT_EQ(last_.frame[kHdr + 7], CW_SLOT_NONE);
  EXPECT_EQ(Load16(last_.frame, 14 + kIpLen), 50101);  // the request's own
}

TEST_F(Probes, KeysChangeWithoutALoss) {
  keys_.valid = 3;
  keys_.tx_id = 1;
  rig_.SetKeys(3, keys_);
  Probe p;
  EXPECT_EQ(Run(p, XDP_TX), "probe_requests=1 peer_restarts=1");
  EXPECT_EQ(last_.frame[kHdr + 18], 1);
  uint64_t mac;
  memcpy(&mac, last_.frame.data() + kHdr + 72, 8);
  EXPECT_EQ(mac, Mac(keys_.tx[1], last_.frame, kHdr, 72));
  p.key_id = 1;
  ++p.round;
  EXPECT_EQ(Run(p, XDP_TX), "probe_requests=1");
  keys_.valid = 2;
  rig_.SetKeys(3, keys_);
  p.key_id = 0;
  ++p.round;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_bad_mac=1");
}

TEST_F(Probes, EveryBitIsUnderTheMac) {
  Bytes good = Build(Probe{});
  for (size_t bit = 0; bit < CW_PROBE_HDR_LEN * 8; ++bit) {
    Bytes bad = good;
    bad[kHdr + bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    RunResult r = rig_.Xdp(bad);
    ASSERT_NE(r.verdict, XDP_TX) << bit;
    ASSERT_EQ(r.frame, bad);
  }
  EXPECT_EQ(rig_.pair(3).peer_session, 0u);
  EXPECT_EQ(rig_.pair(3).rcvd[Probe{}.round & 7].mask, 0u);
  rig_.CounterChanges();
  EXPECT_EQ(Run(good, XDP_TX), "probe_requests=1 peer_restarts=1");
}

TEST_F(Probes, KeysBindTheAddresses) {
  // The peer's request to another address of ours, replayed to this one: other keys.
  Frame f = FrameOf(Probe{});
  f.daddr = 0x0a000009;
  EXPECT_EQ(Run(test::Build(f), XDP_DROP), "probe_bad_mac=1");
  f.daddr = 0x0a000077;
  EXPECT_EQ(Run(test::Build(f), XDP_DROP), "probe_unknown_peer=1");
}

TEST_F(Probes, ReplaysAreRefused) {
  Probe p;
  Bytes first = Build(p);
  Run(first, XDP_TX);
  rig_.CounterChanges();
  EXPECT_EQ(Run(first, XDP_DROP), "probe_replayed=1");
  p.round = 107;
  EXPECT_EQ(Run(p, XDP_TX), "probe_requests=1");
  p.round = 99;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_replayed=1");
  p.slot = 2;
  p.round = 100;  // still within the window, and this slot's did not arrive yet
  EXPECT_EQ(Run(p, XDP_TX), "probe_requests=1");
  p.session = 4001;
  p.round = 1;
  EXPECT_EQ(Run(p, XDP_TX), "probe_requests=1 peer_restarts=1");
  p.session = 4000;
  p.round = 5000;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_replayed=1");
}

TEST_F(Probes, WhatOnlyLooksLikeOursPasses) {
  auto with = [this](auto change) {
    Frame f = FrameOf(Probe{});
    change(f);
    return Run(test::Build(f), XDP_PASS);
  };
  EXPECT_EQ(with([](Frame& f) { f.payload[0] ^= 1; }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.payload[4] = 2; }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.payload[5] = 9; }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.payload[6] = 16; }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.payload.resize(76); }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.payload.resize(84); }), "probe_malformed=1");
  EXPECT_EQ(with([](Frame& f) { f.dqpn = 0x99; }), "opcode_unknown=1");
}

class MessagesTest : public Probes {
 protected:
  Frame Message(size_t body) {
    Probe p;
    p.type = CW_PROBE_MESSAGE;
    p.t1 = body;
    Frame f = FrameOf(p);
    for (size_t i = 0; i < body; ++i) f.payload.push_back(static_cast<uint8_t>(i));
    f.payload.insert(f.payload.end(), 8, 0xaa);  // the body's MAC is the agent's business
    while (f.payload.size() % 4 != 0) f.payload.push_back(0);
    return f;
  }
};

TEST_F(MessagesTest, ArriveWhole) {
  for (size_t body : {0, 1, 2, 3, 500, CW_MSG_MAX}) {
    Frame f = Message(body);
    EXPECT_EQ(Run(test::Build(f), XDP_DROP), "messages=1");
    std::vector<Bytes> records = rig_.Messages();
    ASSERT_EQ(records.size(), 1u);
    auto ev = As<cw_ev_msg>(records[0]);
    EXPECT_EQ(ev.type, CW_EV_MSG);
    EXPECT_EQ(ev.pair, 3);
    f.payload.resize(CW_PROBE_HDR_LEN + body + CW_MSG_MAC_LEN);
    ASSERT_EQ(ev.len, f.payload.size());
    EXPECT_EQ(Bytes(ev.packet, ev.packet + ev.len), f.payload);
  }
}

// As long as a packet of data: the agent gets what it means.
TEST_F(MessagesTest, ArriveWithoutTheirPadding) {
  for (size_t bytes : {1200, 1500, 2048, 3000}) {
    Frame f = Message(24);
    const Bytes whole(f.payload.begin(), f.payload.begin() + CW_PROBE_HDR_LEN + 24 + CW_MSG_MAC_LEN);
    f.payload.resize(bytes);
    EXPECT_EQ(Run(test::Build(f), XDP_DROP), "messages=1");
    std::vector<Bytes> records = rig_.Messages();
    ASSERT_EQ(records.size(), 1u);
    auto ev = As<cw_ev_msg>(records[0]);
    EXPECT_EQ(Bytes(ev.packet, ev.packet + ev.len), whole) << bytes;
  }
}

TEST_F(MessagesTest, WrongLengthsAndMacs) {
  Frame f = Message(100);
  Store64(f.payload, 24, 101 + 3);
  EXPECT_EQ(Run(test::Build(f), XDP_PASS), "probe_malformed=1");
  Store64(f.payload, 24, ~0ull);
  EXPECT_EQ(Run(test::Build(f), XDP_PASS), "probe_malformed=1");
  f = Message(100);
  f.payload[10] ^= 1;
  EXPECT_EQ(Run(test::Build(f), XDP_DROP), "probe_bad_mac=1");
  EXPECT_TRUE(rig_.Messages().empty());
}

TEST_F(MessagesTest, FullRingIsCounted) {
  Bytes frame = test::Build(Message(100));
  rig_.XdpCost(frame, 3000);
  std::string changes = rig_.CounterChanges();
  EXPECT_NE(changes.find("message_ring_full="), std::string::npos) << changes;
}

TEST_F(Probes, TracesEndHere) {
  Probe p;
  p.type = CW_PROBE_TRACE;
  EXPECT_EQ(Run(p, XDP_DROP), "trace_arrived=1");
  Bytes forged = Build(p);
  forged[kHdr + 72] ^= 1;
  EXPECT_EQ(Run(forged, XDP_DROP), "probe_bad_mac=1");
}

// Of what goes to a test QPN only traces are ours; a request there would be answered for who guesses.
TEST_F(Probes, OnlyTracesHaveOtherQpns) {
  const auto with_qpn = [this](Probe p, uint32_t qpn) {
    Bytes frame = Build(p);
    const size_t at = 14 + kIpLen + 8 + 5;
    for (int i = 0; i < 3; ++i) frame[at + i] = static_cast<uint8_t>(qpn >> (16 - 8 * i));
    return frame;
  };
  const uint32_t test_qpn = CW_TEST_QPN_TOP << CW_TEST_QPN_SHIFT | 0x1234;
  Probe p;
  EXPECT_EQ(Run(with_qpn(p, test_qpn), XDP_PASS), "probe_malformed=1");
  p.type = CW_PROBE_TRACE;
  EXPECT_EQ(Run(with_qpn(p, test_qpn), XDP_DROP), "trace_arrived=1");
  EXPECT_EQ(Run(with_qpn(p, CW_BTH_QPN + 1), XDP_PASS).find("trace_arrived"), std::string::npos);
}

// From a peer whose NIC sends UD only. The agent takes it, by an EtherType that is nobody else's.
TEST_F(Probes, AsUdSendsGoToTheAgent) {
  const auto ud = [this](const Bytes& payload) {
    Frame f = FrameOf({.slot = 1, .round = 100});
    f.opcode = CW_UD_OPCODE;
    f.ext = Bytes(CW_DETH_LEN, 0);
    Store32(f.ext, 0, CW_UD_QKEY);
    Store32(f.ext, 4, 0x12);
    f.payload = payload;
    return f;
  };
  Frame f = ud(Header({.slot = 1, .round = 100}, keys_.rx[0]));
  for (const int tags : {0, 1, 2}) {
    f.vlan_tags = tags;
    Bytes frame = test::Build(f);
    last_ = rig_.Xdp(frame);
    EXPECT_EQ(last_.verdict, XDP_PASS);
    Store16(frame, IpOffset(frame) - 2, CW_ETH_UD_PROBE);
    EXPECT_EQ(last_.frame, frame) << tags << " tags";
  }
  EXPECT_EQ(rig_.CounterChanges(), "");
  EXPECT_FALSE(rig_.Flow(FlowKeyOf(kPeer, kOurs, CW_BTH_QPN))) << "a probe is no flow";
  // Anybody else's passes as it came.
  f.vlan_tags = 0;
  Frame other = f;
  other.dqpn = 0x12;
  Run(test::Build(other), XDP_PASS);
  other = f;
  other.ext[0] ^= 1;
  Run(test::Build(other), XDP_PASS);
  other = ud(Bytes(CW_PROBE_HDR_LEN, 7));
  Run(test::Build(other), XDP_PASS);
  EXPECT_TRUE(rig_.Flow(FlowKeyOf(kPeer, kOurs, CW_BTH_QPN)));
}

TEST(LabClock, IsInEveryStamp) {
  ProgRig::Options options;
  options.lab_clock = true;
  ProgRig rig(options);
  cw_lab_clock clock = {};
  clock.segments = 1;
  clock.start_ns[0] = 1;
  clock.base_ns[0] = 1000000000000;
  rig.SetLabClock(clock);
  rig.ctl().sample_level_rx = 0;
  uint64_t before = MonotonicNs();
  rig.Xdp(Build(Frame{}));
  std::vector<Bytes> records = rig.Probes();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_GE(As<cw_ev_sample>(records[0]).ns, before + 1000000000000);
  EXPECT_LE(As<cw_ev_sample>(records[0]).ns, MonotonicNs() + 1000000000000);
}

}  // namespace
}  // namespace cw::test
