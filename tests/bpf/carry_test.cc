// SPDX-License-Identifier: Apache-2.0
// NIC failover: packets leave with the addresses of the pair that carries them, and are put back byte for byte where
// they arrive, so that the ICRC holds again.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "bpf/psn.h"
#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

constexpr uint32_t kOther = 0x0a000101;      // our second NIC
constexpr uint32_t kPeerOther = 0x0a000102;  // the peer's
constexpr int kRedirect = 7;                 // TC_ACT_REDIRECT
constexpr uint32_t kTagged = kQpn | 2u << CW_CARRY_TAG_SHIFT;
const Bytes kMac = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};

class Carry : public Egress {
 protected:
  Carry() : Carry(true) {}
  explicit Carry(bool configured) : Egress({.nic_failover = configured}) {
    rig_.AddPair(6, kOther, kPeer, 4);
    rig_.SetCarryOut(5, {.pair = PairKeyOf(kOther, kPeer), .ifindex = 1, .tag = 2});
    rig_.pair(5).carried = 1;
    Protect();
  }
  // At the peer: what comes from our other NIC is ours.
  void PeerKnows(uint32_t remote = kOurs, uint32_t local = kPeer) {
    cw_carry_in in = {.pair = PairKeyOf(local, remote), .ifindex = 1};
    std::copy(kMac.begin(), kMac.end(), in.mac);
    rig_.SetCarryIn({.pair = PairKeyOf(kPeer, kOther), .tag = 2}, in);
  }
  static Frame Carried(Frame f) {
    f.saddr = kOther;
    f.dqpn = kTagged;
    return f;
  }
  // Built with those addresses, but with the ICRC of what it was.
  static Bytes OnTheWire(const Frame& f) {
    Bytes wire = Build(Carried(f));
    const Bytes was = Build(f);
    std::copy(was.end() - 4, was.end(), wire.end() - 4);
    return wire;
  }
};

TEST_F(Carry, LeavesWithTheOtherPairsAddressesAndATag) {
  const Frame f = Data(1);
  RunResult r = rig_.Tc(Build(f));
  EXPECT_EQ(r.verdict, kRedirect);
  EXPECT_EQ(r.frame, OnTheWire(f));
  EXPECT_TRUE(IpChecksumOk(r.frame));
  EXPECT_NE(StoredIcrc(r.frame), Icrc(r.frame)) << "an RDMA stack that it reaches like this must refuse it";
  EXPECT_EQ(rig_.CounterChanges(), "nic_carried=1");
  EXPECT_EQ(Sent().flow.packets, 1u);
}

TEST_F(Carry, IsPutBackByteForByteWhereItArrives) {
  PeerKnows();
  for (uint16_t size : {0, 4, 256, 2048}) {
    Frame f = Data(7);
    f.payload = Bytes(size, 0x5a);
    Bytes expected = Build(f);
    RunResult r = rig_.TcIn(rig_.Tc(expected).frame);
    EXPECT_EQ(r.verdict, kRedirect);
    std::copy(kMac.begin(), kMac.end(), expected.begin());
    EXPECT_EQ(r.frame, expected);
    EXPECT_EQ(StoredIcrc(r.frame), Icrc(r.frame));
    EXPECT_TRUE(IpChecksumOk(r.frame));
  }
  EXPECT_EQ(rig_.CounterChanges(), "nic_carried=4 nic_restored=4");
}

TEST_F(Carry, ToAnotherNicOfThePeerToo) {
  rig_.SetCarryOut(5, {.pair = PairKeyOf(kOther, kPeerOther), .ifindex = 1, .tag = 3});
  cw_carry_in in = {.pair = PairKeyOf(kPeer, kOurs), .ifindex = 1};
  std::copy(kMac.begin(), kMac.end(), in.mac);
  rig_.SetCarryIn({.pair = PairKeyOf(kPeerOther, kOther), .tag = 3}, in);
  Bytes expected = Build(Data(7));
  RunResult r = rig_.TcIn(rig_.Tc(expected).frame);
  std::copy(kMac.begin(), kMac.end(), expected.begin());
  EXPECT_EQ(r.frame, expected);
}

TEST_F(Carry, IsSteeredOnTheWayAsAFlowOfTheCarryingPair) {
  PeerKnows();
  const Frame f = Data(1);
  rig_.Tc(OnTheWire(f));  // what the other NIC's egress sees
  cw_flow_key key = FlowKeyOf(kOther, kPeer, kTagged);
  cw_tx_flow record = rig_.TxFlow(key).value();
  EXPECT_EQ(record.pair, 6);
  record.slot = 2;
  record.port = 50002;
  rig_.SetTxFlow(key, record);
  RunResult r = rig_.Tc(OnTheWire(f));
  EXPECT_EQ(r.verdict, kUnspec);
  EXPECT_EQ(Load16(r.frame, UdpOffset(r.frame)), 50002);
  Bytes expected = WithPort(f, 50002);
  r = rig_.TcIn(r.frame);
  std::copy(kMac.begin(), kMac.end(), expected.begin());
  EXPECT_EQ(r.frame, expected) << "with the ICRC of the new port";
}

TEST_F(Carry, ACarriedPacketIsNotCarriedAgain) {
  rig_.SetCarryOut(6, {.pair = PairKeyOf(kOurs, kPeer), .ifindex = 1, .tag = 1});
  rig_.pair(6).carried = 1;
  EXPECT_EQ(rig_.Tc(OnTheWire(Data(1))).verdict, kUnspec);
}

TEST_F(Carry, AnyDoubtLeavesThePacketAlone) {
  const auto untouched = [&](const Frame& f, const char* why) {
    const Bytes frame = Build(f);
    RunResult r = rig_.Tc(frame);
    EXPECT_EQ(r.verdict, kUnspec) << why;
    EXPECT_EQ(r.frame, frame) << why;
  };
  Frame f = Data(1, 1u << CW_CARRY_TAG_SHIFT);
  untouched(f, "no room for the tag");
  f = Data(1);
  f.udp_checksum = true;
  untouched(f, "the checksum covers the addresses");
  f = Data(1);
  f.vlan_tags = 1;
  untouched(f, "tagged");
  rig_.ctl().mode = CW_MODE_OBSERVE;
  untouched(Data(1), "observe");
  rig_.ctl().mode = CW_MODE_OFF;
  untouched(Data(1), "off");
  Protect();
  rig_.pair(5).withheld = 1u << CW_CAP_NIC;
  untouched(Data(1), "its NIC's mode");
  rig_.pair(5).withheld = 0;
  rig_.ctl().lease_jiffies = 1;
  untouched(Data(1), "no agent");
  rig_.ctl().lease_jiffies = 0;
  rig_.SetCarryOut(5, {});
  untouched(Data(1), "nothing is said of how");
  rig_.pair(5).carried = 0;
  rig_.SetCarryOut(5, {.pair = PairKeyOf(kOther, kPeer), .ifindex = 1, .tag = 2});
  untouched(Data(1), "back");
}

struct CarryNotConfigured : Carry {
  CarryNotConfigured() : Carry(false) {}
};

TEST_F(CarryNotConfigured, NothingIsCarriedWhateverTheMapsSay) {
  const Bytes frame = Build(Data(1));
  RunResult r = rig_.Tc(frame);
  EXPECT_EQ(r.verdict, kUnspec);
  EXPECT_EQ(r.frame, frame);
  EXPECT_EQ(rig_.CounterChanges(), "native_unprobed=1");
}

TEST_F(Carry, WhatNoEntryKnowsPasses) {
  const Bytes wire = OnTheWire(Data(1));
  EXPECT_EQ(rig_.TcIn(wire).verdict, kUnspec);
  EXPECT_EQ(rig_.TcIn(wire).frame, wire);
  EXPECT_EQ(rig_.CounterChanges(), "nic_unknown=2");
  PeerKnows();
  Bytes plain = Build(Data(1));
  EXPECT_EQ(rig_.TcIn(plain).verdict, kUnspec);
  EXPECT_EQ(rig_.TcIn(plain).frame, plain);
  Frame f = Data(1);
  f.dport = 4790;
  EXPECT_EQ(rig_.TcIn(Build(Carried(f))).verdict, kUnspec);
  EXPECT_EQ(rig_.CounterChanges(), "");
}

}  // namespace
}  // namespace cw::test
