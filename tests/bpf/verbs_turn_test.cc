// SPDX-License-Identifier: Apache-2.0
// A probe that came by verbs, shown to the programs: what they make of it is what they make of the same probe on a
// netdev.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "tests/bpf/probe_fixture.h"
#include "userspace/probe/packet.h"
#include "userspace/probe_verbs/responder.h"

namespace cw::test {
namespace {

using probe_verbs::Turn;
using probe_verbs::Turned;

const Addr kOursAddr = Addr::FromV4(kOurs), kPeerAddr = Addr::FromV4(kPeer);

class VerbsTurn : public Probes {
 protected:
  Turned TurnOf(const Probe& p, const probe_verbs::Arrival& arrival) {
    const Bytes payload = Header(p, keys_.rx[p.key_id & 1]);
    return Turn(runner_, arrival, 50007, payload, &frame_);
  }
  const probe_verbs::Arrival arrival_ = {.from = kPeerAddr, .to = kOursAddr, .traffic_class = 0x6a, .hop_limit = 61};
  dataplane::ProgramRunner runner_{bpf_program__fd(rig_.skeleton()->progs.cw_xdp_ingress),
                                   bpf_program__fd(rig_.skeleton()->progs.cw_tc_egress)};
  probe_verbs::Frame frame_;
};

TEST_F(VerbsTurn, ARequestIsAnsweredAsOnANetdev) {
  const Probe request{.slot = 1, .round = 100};
  const uint64_t before = MonotonicNs();
  const Turned turned = TurnOf(request, arrival_);
  ASSERT_TRUE(turned.accepted);
  ASSERT_TRUE(turned.reply);
  EXPECT_EQ(turned.reply->from, kOursAddr);
  EXPECT_EQ(turned.reply->to, kPeerAddr);
  EXPECT_EQ(turned.reply->type, CW_PROBE_REPLY);
  EXPECT_EQ(turned.reply->traffic_class, 0x6a);
  const auto reply = As<cw_probe_hdr>(Bytes(turned.reply->payload.begin(), turned.reply->payload.end()));
  EXPECT_EQ(turned.reply->port, rig_.pair(3).slot[reply.rslot].port);
  const uint64_t t2 = __builtin_bswap64(reply.t2), t3 = __builtin_bswap64(reply.t3);
  EXPECT_GE(t2, before);
  EXPECT_GE(t3, t2);
  EXPECT_LE(t3, MonotonicNs());
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1");
  // Replayed, it is known.
  EXPECT_FALSE(TurnOf(request, arrival_).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_replayed=1");
}

TEST_F(VerbsTurn, CongestionOnTheWayIsTold) {
  probe_verbs::Arrival marked = arrival_;
  marked.traffic_class |= 3;
  const Turned turned = TurnOf({.slot = 1, .round = 101}, marked);
  ASSERT_TRUE(turned.reply);
  const auto reply = As<cw_probe_hdr>(Bytes(turned.reply->payload.begin(), turned.reply->payload.end()));
  EXPECT_EQ(reply.flags, CW_PROBE_CE | CW_PROBE_ECT);
  EXPECT_EQ(turned.reply->traffic_class, 0x6a);
}

TEST_F(VerbsTurn, WithNoLivePathTheAnswerTakesThePortThatIsAskedFor) {
  rig_.pair(3).live_mask = 0;
  const Turned turned = TurnOf({.slot = 1, .round = 100}, arrival_);
  ASSERT_TRUE(turned.reply);
  EXPECT_EQ(turned.reply->port, 50007);
}

TEST_F(VerbsTurn, OtherAddressesOrAWrongMacAreRefused) {
  probe_verbs::Arrival other = arrival_;
  other.from = Addr::FromV4(kPeer + 1);
  EXPECT_FALSE(TurnOf({.slot = 1, .round = 100}, other).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_unknown_peer=1");
  keys_.rx[0][0] ^= 1;
  EXPECT_FALSE(TurnOf({.slot = 1, .round = 100}, arrival_).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_bad_mac=1");
  const Bytes noise(CW_PROBE_HDR_LEN, 7);
  EXPECT_FALSE(Turn(runner_, arrival_, 50007, noise, &frame_).accepted);
  EXPECT_EQ(rig_.CounterChanges(), "probe_malformed=1");
  EXPECT_FALSE(Turn(runner_, arrival_, 50007, Bytes(20, 7), &frame_).accepted);
}

// Our own request leaves, and its answer is matched with it.
TEST_F(VerbsTurn, TheEgressProgramNotesWhenARequestLeaves) {
  probe::PacketSpec spec;
  spec.local = kOursAddr;
  spec.remote = kPeerAddr;
  spec.port = 50001;
  spec.slot = 1;
  spec.session = 77;
  spec.cookie = 3;
  spec.slots = 15;
  memcpy(spec.key.k, keys_.tx[0], sizeof(spec.key.k));
  auto request = probe::ProbeTemplate::Make(CW_PROBE_REQUEST, spec);
  ASSERT_TRUE(request.ok()) << request.status();
  request->SetRound(200);
  const auto seen = probe_verbs::FrameOf(request->bytes(), &frame_);
  ASSERT_TRUE(seen);
  const uint64_t before = MonotonicNs();
  ASSERT_TRUE(runner_.Egress(*seen).ok());
  EXPECT_EQ(rig_.CounterChanges(), "probe_sent=1");
  Probe reply{.type = CW_PROBE_REPLY, .slot = 1, .rslot = 2, .session = 77, .round = 200, .cookie = 3};
  reply.responder_session = 4000;
  reply.t2 = MonotonicNs();
  reply.t3 = reply.t2 + 10;
  reply.bitmap[0] = 2;
  const Turned turned = TurnOf(reply, arrival_);
  EXPECT_TRUE(turned.accepted);
  EXPECT_FALSE(turned.reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_replies=1");
  const std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  const auto ev = As<cw_ev_probe>(records[0]);
  EXPECT_GE(ev.t1, before);
  EXPECT_LE(ev.t1, reply.t2);
  EXPECT_GE(ev.t4, reply.t3 - 10);
}

}  // namespace
}  // namespace cw::test
