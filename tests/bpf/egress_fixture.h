// SPDX-License-Identifier: Apache-2.0
// What the tests of tc egress share: a pair with four slots, flows on them, and the check that a packet left as it came
// but for its source port and ICRC.
#ifndef CW_TESTS_BPF_EGRESS_FIXTURE_H
#define CW_TESTS_BPF_EGRESS_FIXTURE_H

#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <functional>

#include "tests/bpf/prog_rig.h"

namespace cw::test {

inline constexpr uint32_t kQpn = 0x55;
inline constexpr int kUnspec = -1;  // TC_ACT_UNSPEC

// What the frame must be with another source port: rebuilt from its fields, nothing patched.
// Over IPv6 the flow label goes with it.
inline Bytes WithPort(Frame f, uint16_t port) {
  if (f.sport != port) f.label = port;
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
  static cw_flow_key Key(uint32_t qpn = kQpn) { return FlowKeyOf(kOurs, kPeer, qpn); }

  // Sends the frame and returns the source port that it left with; all else must be as built with that port.
  uint16_t Send(const Frame& f) {
    RunResult r = rig_.Tc(Build(f));
    EXPECT_EQ(r.verdict, kUnspec);
    uint16_t port = Load16(r.frame, UdpOffset(r.frame));
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

}  // namespace cw::test

#endif
