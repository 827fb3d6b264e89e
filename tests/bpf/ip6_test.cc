// SPDX-License-Identifier: Apache-2.0
// What only IPv6 has: the flow label, headers between IP and UDP, and IPv4 beside it. All else is in the suites that
// are compiled for both families.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "tests/bpf/egress_fixture.h"

namespace cw::test {
namespace {

class Ip6Egress : public Egress {
 protected:
  static uint32_t Label(const Bytes& frame) { return Load32(frame, IpOffset(frame)) & 0xfffff; }
  uint32_t LabelSent(const Frame& f) { return Label(rig_.Tc(Build(f)).frame); }
};

TEST_F(Ip6Egress, TheLabelOfWhatIsSteeredIsItsPort) {
  Place(1);
  for (uint32_t label : {0u, 0x12345u, 0xfffffu, 50001u}) {
    for (uint8_t tos : {0x00, 0x6a, 0xff}) {
      Frame f = Data(1 + label + tos);
      f.label = label;
      f.tos = tos;
      EXPECT_EQ(LabelSent(f), 50001u);
      EXPECT_EQ(Send(f), 50001) << "and all else as it was";
    }
  }
  rig_.ctl().mode = CW_MODE_OBSERVE;
  Frame f = Data(9);
  f.label = 0x777;
  EXPECT_EQ(LabelSent(f), 0x777u);
}

TEST_F(Ip6Egress, TheNativeLabelIsKept) {
  Frame f = Data(1);
  f.label = 0xabcde;
  Send(f);
  const cw_tx_flow sent = Sent();
  EXPECT_EQ(sent.label[0], 0x0a);
  EXPECT_EQ(sent.label[1], 0xbc);
  EXPECT_EQ(sent.label[2], 0xde);
}

TEST_F(Ip6Egress, HeadersInBetweenAreLeftAlone) {
  Place(1);
  Frame f = Data(1);
  f.ip6_extension = FromHex("11 00 010400000000");
  const Bytes frame = Build(f);
  const RunResult r = rig_.Tc(frame);
  EXPECT_EQ(r.verdict, kUnspec);
  EXPECT_EQ(r.frame, frame);
  EXPECT_EQ(rig_.CounterChanges(), "ip6_extension=1");
}

TEST_F(Ip6Egress, FlowsOfBothFamiliesAreApart) {
  Place(1);
  Frame f = Data(1);
  f.ip6 = false;
  const Bytes frame = Build(f);
  EXPECT_EQ(rig_.Tc(frame).frame, frame) << "that address is no peer";
  EXPECT_EQ(rig_.CounterChanges(), "peer_unknown=1");
  EXPECT_EQ(Sent().flow.packets, 1u);
}

class Ip6Carry : public Egress {
 protected:
  Ip6Carry() : Egress({.nic_failover = true}) {}
};

TEST_F(Ip6Carry, IsNotCarriedByAPairOfTheOtherFamily) {
  cw_carry_out out = {.pair = PairKeyOf(0x0a000101, kPeer), .ifindex = 1, .tag = 2};
  const Bytes local = AddressBytes(0x0a000101, false), remote = AddressBytes(kPeer, false);
  std::copy(local.begin(), local.end(), out.pair.local);
  std::copy(remote.begin(), remote.end(), out.pair.remote);
  rig_.SetCarryOut(5, out);
  rig_.pair(5).carried = 1;
  Protect();
  EXPECT_EQ(Send(1), 49999) << "untouched";
}

}  // namespace
}  // namespace cw::test
