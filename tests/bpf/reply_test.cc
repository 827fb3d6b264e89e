// SPDX-License-Identifier: Apache-2.0
// Replies to our own probes: the four times, and the verdicts of the rule of liveness with their evidence.
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "tests/bpf/probe_fixture.h"

namespace cw::test {
namespace {

class Replies : public Probes {
 protected:
  Replies() = default;
  explicit Replies(const ProgRig::Options& options) : Probes(options) {}
  static constexpr uint64_t kT1 = 1000000000;
  // A request of ours is under way on each of the four slots, in the rounds from .. to.
  void Outstanding(uint32_t from, uint32_t to) {
    cw_probe_tx tx = rig_.ProbeTx(3);
    for (uint32_t round = from; round <= to; ++round) {
      for (int s = 0; s < 4; ++s) {
        tx.t1[s][round % CW_TX_ROUNDS] = kT1 + round * 1000000;
        tx.round[s][round % CW_TX_ROUNDS] = round;
      }
      rig_.pair(3).sent[round & 7] = {round, 15};
    }
    rig_.SetProbeTx(3, tx);
    rig_.pair(3).cur_round = to;
  }
  // The peer's reply: its clock is two seconds ahead, the way took 20 us.
  Probe ReplyTo(uint32_t round, uint8_t slot) {
    Probe p;
    p.type = CW_PROBE_REPLY;
    p.session = 77;
    p.round = round;
    p.slot = slot;
    p.rslot = 2;
    p.cookie = 3;
    p.responder_session = 4000;
    p.t2 = kT1 + round * 1000000 + 2000000000 + 20000;
    p.t3 = p.t2 + 300;
    p.bitmap[0] = static_cast<uint16_t>(1 << slot);
    return p;
  }
};

TEST_F(Replies, GivesAllFourTimes) {
  Outstanding(100, 100);
  uint64_t before = MonotonicNs();
  EXPECT_EQ(Run(ReplyTo(100, 1), XDP_DROP), "probe_replies=1");
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  auto ev = As<cw_ev_probe>(records[0]);
  EXPECT_EQ(ev.type, CW_EV_PROBE);
  EXPECT_EQ(ev.pair, 3);
  EXPECT_EQ(ev.slot, 1);
  EXPECT_EQ(ev.rslot, 2);
  EXPECT_EQ(ev.round, 100u);
  EXPECT_EQ(ev.responder_session, 4000u);
  EXPECT_EQ(ev.t1, kT1 + 100 * 1000000);
  EXPECT_EQ(ev.t2, ev.t1 + 2000020000);
  EXPECT_EQ(ev.t3, ev.t2 + 300);
  EXPECT_GE(ev.t4, before);
  EXPECT_LE(ev.t4, MonotonicNs());
  EXPECT_EQ(ev.t2_nic, 0u);
  EXPECT_EQ(ev.t4_nic, 0u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ev.arrived[i], i == 0 ? 1 << 1 : 0);
  EXPECT_EQ(rig_.pair(3).last_reply_ns, ev.t4);
  EXPECT_EQ(rig_.pair(3).slot[1].progress_round, 100u);
  EXPECT_EQ(rig_.pair(3).slot[1].raw_ns, 2000020000u);
  EXPECT_EQ(rig_.ProbeTx(3).t1[1][100 % CW_TX_ROUNDS], 0u);
}

TEST_F(Replies, HandsOnWhatArrivedInEightRounds) {
  Outstanding(100, 100);
  Probe reply = ReplyTo(100, 1);
  for (uint16_t i = 1; i < 8; ++i) reply.bitmap[i] = static_cast<uint16_t>(0x1230 + i);
  reply.flags = CW_PROBE_ECT | CW_PROBE_CE;
  EXPECT_EQ(Run(reply, XDP_DROP), "probe_replies=1");
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  for (int i = 1; i < 8; ++i) EXPECT_EQ(As<cw_ev_probe>(records[0]).arrived[i], 0x1230 + i);
  EXPECT_EQ(As<cw_ev_probe>(records[0]).flags, CW_PROBE_ECT | CW_PROBE_CE);
}

// The newest request of the peer says which slots it probes.
TEST_F(Replies, RequestsTellThePeersSlots) {
  Probe request;
  request.bitmap[0] = 0x8005;
  Run(request, XDP_TX);
  EXPECT_EQ(rig_.pair(3).peer_slots, 0x8005u);
  request.round += 1;
  request.bitmap[0] = 0x0005;
  Run(request, XDP_TX);
  EXPECT_EQ(rig_.pair(3).peer_slots, 5u);
  request.round -= 2;  // an older one, that came late
  request.slot = 1;
  request.bitmap[0] = 0x8005;
  Run(request, XDP_TX);
  EXPECT_EQ(rig_.pair(3).peer_slots, 5u);
}

TEST_F(Replies, OnlyToWhatIsOutstandingAndOnce) {
  Outstanding(100, 100);
  EXPECT_EQ(Run(ReplyTo(100, 1), XDP_DROP), "probe_replies=1");
  EXPECT_EQ(Run(ReplyTo(100, 1), XDP_DROP), "probe_stale=1");
  EXPECT_EQ(Run(ReplyTo(101, 1), XDP_DROP), "probe_stale=1");
  EXPECT_EQ(Run(ReplyTo(100, 9), XDP_DROP), "probe_stale=1");
  Probe p = ReplyTo(100, 2);
  p.session = 76;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_bad_session=1");
  p = ReplyTo(100, 2);
  p.cookie = 0;  // another pair of ours
  EXPECT_EQ(Run(p, XDP_DROP), "probe_unknown_peer=1");
  p.cookie = 999;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_unknown_peer=1");
  p = ReplyTo(100, 2);
  Bytes forged = Build(p);
  forged[kHdr + 35] ^= 1;
  EXPECT_EQ(Run(forged, XDP_DROP), "probe_bad_mac=1");
  EXPECT_EQ(Run(p, XDP_DROP), "probe_replies=1");
  EXPECT_EQ(rig_.Probes().size(), 2u);
}

TEST_F(Replies, NewSlotComesUp) {
  rig_.pair(3).slot[1].state = CW_SLOT_NEW;
  rig_.pair(3).live_mask = 0x0d;
  Outstanding(100, 100);
  EXPECT_EQ(Run(ReplyTo(100, 1), XDP_DROP), "probe_replies=1");
  EXPECT_EQ(rig_.pair(3).slot[1].state, CW_SLOT_UP);
  EXPECT_EQ(rig_.pair(3).live_mask, 0x0fu);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  auto ev = As<cw_ev_slot>(events[0]);
  EXPECT_EQ(ev.type, CW_EV_SLOT);
  EXPECT_EQ(ev.slot, 1);
  EXPECT_EQ(ev.from, CW_SLOT_NEW);
  EXPECT_EQ(ev.to, CW_SLOT_UP);
}

TEST_F(Replies, SilentSlotDiesWithItsEvidenceAndRevives) {
  // Slot 3 stops after round 100. Bitmaps show the others.
  rig_.pair(3).floor_round = 90;
  uint32_t round = 95;
  std::string died;
  uint32_t death_round = 0;
  auto step = [&](bool slot3) {
    ++round;
    Outstanding(round, round);
    std::string all;
    for (uint8_t s = 0; s < 3; ++s) {
      Probe p = ReplyTo(round, s);
      for (uint32_t i = 0; i < 8; ++i) {
        uint32_t r = round - i;
        bool third = r <= 100 || (slot3 && r > 130);
        p.bitmap[i] = static_cast<uint16_t>(r < 96 ? 0 : third ? 15 : 7);
      }
      std::string changes = Run(p, XDP_DROP);
      if (changes != "probe_replies=1") all += changes;
    }
    return all;
  };
  while (round < 130) {
    std::string changes = step(false);
    if (!changes.empty()) {
      EXPECT_TRUE(died.empty());
      died = changes;
      death_round = round;
    }
  }
  EXPECT_EQ(died, "probe_replies=1 slots_died=1");
  EXPECT_GE(death_round, 103u);
  EXPECT_LE(death_round, 104u);
  EXPECT_EQ(rig_.pair(3).slot[3].state, CW_SLOT_DEAD);
  EXPECT_EQ(rig_.pair(3).slot[3].deaths, 1u);
  EXPECT_EQ(rig_.pair(3).live_mask, 7u);
  std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  auto ev = As<cw_ev_slot>(events[0]);
  EXPECT_EQ(ev.pair, 3);
  EXPECT_EQ(ev.slot, 3);
  EXPECT_EQ(ev.from, CW_SLOT_SUSPECT);
  EXPECT_EQ(ev.to, CW_SLOT_DEAD);
  EXPECT_EQ(ev.progress_round, 100u);
  EXPECT_EQ(ev.round, death_round);
  EXPECT_EQ(ev.misses, 3u);
  EXPECT_EQ(ev.limit, 3u);
  EXPECT_GE(ev.silence_ns, 2500000u);
  EXPECT_LE(ev.silence_ns, 4500000u);
  EXPECT_EQ(ev.jump_ns, 0u);
  EXPECT_EQ(ev.half, 0);
  EXPECT_LT(ev.witness, 3);

  std::string revived;
  while (round < 145) revived += step(true);
  EXPECT_EQ(revived, "probe_replies=1 slots_revived=1");
  EXPECT_EQ(rig_.pair(3).slot[3].state, CW_SLOT_UP);
  EXPECT_EQ(rig_.pair(3).live_mask, 15u);
  events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(As<cw_ev_slot>(events[0]).from, CW_SLOT_DEAD);
}

// All went on after a pause of twenty milliseconds, slot 3 a little later than the others.
TEST_F(Replies, SilenceOfAllSlotsIsNoSilenceOfOne) {
  rig_.pair(3).floor_round = 90;
  constexpr uint64_t kPause = 20'000'000;
  for (uint32_t round = 96; round <= 104; ++round) {
    Outstanding(round, round);
    Probe p = ReplyTo(round, 0);
    p.t2 += round > 100 ? kPause : 0;
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t r = round - i;
      p.bitmap[i] = static_cast<uint16_t>(r < 96 ? 0 : r <= 100 ? 15 : 7);
    }
    EXPECT_EQ(Run(p, XDP_DROP), round == 104 ? "probe_replies=1 slots_died=1" : "probe_replies=1") << round;
  }
  const std::vector<Bytes> events = rig_.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_LT(As<cw_ev_slot>(events[0]).silence_ns, 6'000'000u) << "the pause is not counted";
}

TEST_F(Replies, AcknowledgedDataVetoes) {
  rig_.pair(3).floor_round = 90;
  for (uint32_t round = 101; round < 130; ++round) {
    Outstanding(round, round);
    rig_.pair(3).slot[3].acked_round = round - 1;  // as ingress notes it
    Probe p = ReplyTo(round, 0);
    for (uint16_t& mask : p.bitmap) mask = 7;
    EXPECT_EQ(Run(p, XDP_DROP), "probe_replies=1");
  }
  EXPECT_NE(rig_.pair(3).slot[3].state, CW_SLOT_DEAD);
}

TEST_F(Replies, AnotherLifeOfThePeerClearsMisses) {
  rig_.pair(3).responder_session = 4000;
  rig_.pair(3).floor_round = 90;
  Outstanding(101, 108);
  Probe p = ReplyTo(108, 0);
  p.responder_session = 4001;
  p.bitmap[1] = 1;
  p.bitmap[2] = 1;
  p.bitmap[3] = 1;
  p.bitmap[4] = 1;
  EXPECT_EQ(Run(p, XDP_DROP), "probe_replies=1");
  EXPECT_EQ(rig_.pair(3).floor_round, 108u);
  EXPECT_EQ(rig_.pair(3).responder_session, 4001u);
  EXPECT_EQ(rig_.pair(3).live_mask, 15u);
}

// A NIC whose clock is 100 s ahead of the machine's, and ours a line away from that.
class NicStamps : public Replies {
 protected:
  static constexpr uint64_t kNicAhead = 100'000'000'000, kLocalAhead = 7'000;
  void SetUp() override {
    cw_lab_clock nic = {};
    nic.segments = 1;
    nic.base_ns[0] = kNicAhead;
    rig_.SetLabNic(nic);
  }
  // Our stamps seem to be kLocalAhead later than they are, to tell them from software's.
  void SetLine(uint64_t slack_ns) {
    const uint64_t now = MonotonicNs();
    rig_.SetNicLine(1, {.nic_ns = now + kNicAhead,
                        .local_ns = now + kLocalAhead,
                        .rate_q32 = 0,
                        .until_ns = UINT64_MAX,
                        .slack_ns = slack_ns});
  }
  NicStamps() : Replies(WithNic()) {}
  static ProgRig::Options WithNic() {
    ProgRig::Options options;
    options.lab_nic = true;
    return options;
  }
};

TEST_F(NicStamps, OfRepliesAndOfRequestsGoBesideTheProgramsOwn) {
  SetLine(50'000'000);
  Outstanding(100, 101);
  Probe reply = ReplyTo(100, 1);
  reply.t2_nic = reply.t2 - 400;
  const uint64_t before = MonotonicNs();
  EXPECT_EQ(Run(reply, XDP_DROP), "probe_replies=1 nic_stamps=1");
  const uint64_t after = MonotonicNs();
  std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  auto ev = As<cw_ev_probe>(records[0]);
  EXPECT_EQ(ev.t2_nic, ev.t2 - 400);
  EXPECT_GE(ev.t4, before);
  EXPECT_LE(ev.t4, after);
  EXPECT_GE(ev.t4_nic, before + kLocalAhead);
  EXPECT_LE(ev.t4_nic, ev.t4 + kLocalAhead) << "the NIC looked first";

  Probe request;
  EXPECT_EQ(Run(Build(request), XDP_TX), "probe_requests=1 peer_restarts=1 nic_stamps=1");
  const uint64_t t2 = Load64(last_.frame, kHdr + 32), t2_nic = Load64(last_.frame, kHdr + 64);
  EXPECT_GE(t2_nic, after + kLocalAhead);
  EXPECT_LE(t2_nic, t2 + kLocalAhead);
  EXPECT_EQ(Mac(keys_.tx[0], last_.frame, kHdr, CW_PROBE_MAC_OFFSET),
            As<uint64_t>(Bytes(last_.frame.begin() + kHdr + 72, last_.frame.begin() + kHdr + 80)));
}

TEST_F(NicStamps, WithoutALineOrBeyondBeliefThereAreNone) {
  Outstanding(100, 100);
  EXPECT_EQ(Run(ReplyTo(100, 0), XDP_DROP), "probe_replies=1 nic_stamps_off=1");
  SetLine(kLocalAhead / 2);  // so they are of the future
  EXPECT_EQ(Run(ReplyTo(100, 1), XDP_DROP), "probe_replies=1 nic_stamps_off=1");
  Probe request;
  EXPECT_EQ(Run(Build(request), XDP_TX), "probe_requests=1 peer_restarts=1 nic_stamps_off=1");
  EXPECT_EQ(Load64(last_.frame, kHdr + 64), 0u);
  for (const Bytes& record : rig_.Probes()) EXPECT_EQ(As<cw_ev_probe>(record).t4_nic, 0u);
}

}  // namespace
}  // namespace cw::test
