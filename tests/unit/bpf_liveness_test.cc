// SPDX-License-Identifier: Apache-2.0
#include "bpf/liveness.h"

#include <gtest/gtest.h>

#include "tests/unit/bpf_pair_sim.h"

namespace cw::test {
namespace {

constexpr uint64_t kStart = kSecond;  // PairSim begins here

auto DeadFrom(int slot, uint64_t from, uint64_t to = UINT64_MAX) {
  return [=](int s, uint64_t t, std::mt19937&) { return s != slot || t < from || t >= to; };
}

// Queues as a busy link has them: idle half of the time, else bursts that build up and drain within milliseconds.
auto BurstyQueue(uint64_t peak) {
  return [peak](int slot, uint64_t t, std::mt19937& random) -> uint64_t {
    uint64_t period = 7 * kMs + slot * 1300 * kUs;
    uint64_t phase = t % period;
    uint64_t depth = phase < period / 2 ? 0 : peak * (phase - period / 2) / (period / 2);
    return depth + random() % (depth / 8 + 5 * kUs);
  };
}

// What handles a path's packets stands still three times a second, for up to `most`, and then hands on all it has.
auto StandsStill(uint64_t most, uint64_t until = UINT64_MAX) {
  return [=](int slot, uint64_t t, std::mt19937&) -> uint64_t {
    const uint64_t turn = t / (333 * kMs), begin = turn * 333 * kMs + slot * 57 * kMs;
    const uint64_t length = most / 2 + (turn * 7919 + slot * 104729) % (most / 2);
    return t >= begin && t < begin + length && t < until ? begin + length - t : 0;
  };
}

TEST(BpfBits, PopcountLowestAndKth) {
  for (uint32_t mask = 0; mask < 65536; ++mask) {
    ASSERT_EQ(cw_popcount16(mask), static_cast<uint32_t>(__builtin_popcount(mask)));
    ASSERT_EQ(cw_lowest_bit(mask), mask ? static_cast<uint32_t>(__builtin_ctz(mask)) : 16u);
    uint32_t k = 0;
    for (uint32_t bit = 0; bit < 16; ++bit)
      if (mask >> bit & 1) {
        ASSERT_EQ(cw_kth_bit(mask, k++), bit) << mask;
      }
  }
}

TEST(BpfRounds, MarksAreKeptPerRound) {
  cw_round_mask entry = {};
  EXPECT_EQ(cw_round_mark(&entry, 8, 3), 0);
  EXPECT_EQ(cw_round_mark(&entry, 8, 3), 1);
  EXPECT_EQ(cw_round_mark(&entry, 8, 15), 0);
  EXPECT_EQ(cw_round_mask_of(&entry, 8), 0x8008u);
  EXPECT_EQ(cw_round_mask_of(&entry, 16), 0u);
  EXPECT_EQ(cw_round_mark(&entry, 16, 0), 0);
  EXPECT_EQ(cw_round_mask_of(&entry, 16), 1u);
  EXPECT_EQ(cw_round_mark(&entry, 8, 1), 1);  // older than what is there
  entry = {0xfffffff8, 1};
  EXPECT_EQ(cw_round_mark(&entry, 0, 2), 0);  // the numbers wrapped
  EXPECT_EQ(cw_round_mask_of(&entry, 0), 4u);
}

TEST(BpfRounds, Admission) {
  cw_pair pair = {};
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 50, 0), CW_ADMITTED_RESTART);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 50, 0), CW_REPLAYED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 50, 1), CW_ADMITTED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 57, 0), CW_ADMITTED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 50, 2), CW_ADMITTED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 49, 2), CW_REPLAYED);  // left the window, and newer ones of its slot came
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 49, 3), CW_ADMITTED);  // it queued for long
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 49, 3), CW_REPLAYED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 48, 3), CW_REPLAYED);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 57 - CW_TX_ROUNDS, 4), CW_REPLAYED);
  EXPECT_EQ(cw_rounds_admit(&pair, 99, 1000, 0), CW_REPLAYED);  // an older session
  EXPECT_EQ(cw_rounds_admit(&pair, 101, 1, 0), CW_ADMITTED_RESTART);
  EXPECT_EQ(cw_round_mask_of(&pair.rcvd[57 & 7], 57), 0u);
  EXPECT_EQ(cw_rounds_admit(&pair, 100, 58, 0), CW_REPLAYED);
}

// As of a host that has probed for ten days when its peer starts.
TEST(BpfRounds, AnyNumberMayBeTheFirst) {
  for (const uint32_t first : {0u, 1u, 0x7fffffffu, 0x80000001u, 0xc0000000u, 0xfffffff9u}) {
    cw_pair pair = {};
    EXPECT_EQ(cw_rounds_admit(&pair, 100, first, 3), CW_ADMITTED_RESTART) << first;
    EXPECT_EQ(cw_rounds_admit(&pair, 100, first, 3), CW_REPLAYED) << first;
    for (uint32_t i = 1; i < 20; ++i) EXPECT_EQ(cw_rounds_admit(&pair, 100, first + i, 3), CW_ADMITTED) << first;
    cw_probe_tx tx = {};
    cw_rounds_leave(&pair, &tx, 200, first, 3, 1000, 1);
    EXPECT_EQ(cw_round_mask_of(&pair.sent[first & (CW_ROUNDS - 1)], first), 8u) << first;
  }
}

// What is refused before the MAC is computed is what would be refused after it, no more and no less.
TEST(BpfRounds, KnownIsWhatAdmissionCallsAReplay) {
  std::mt19937 random(7);
  cw_pair pair = {};
  uint32_t session = 100, round = 0xffffff00;  // the numbers wrap on the way
  int replays = 0;
  for (int i = 0; i < 200'000; ++i) {
    round += random() % 8 == 0 ? 1 : 0;
    session += random() % 5000 == 0 ? 1 : 0;
    const uint32_t asked_session = session - (random() % 50 == 0 ? 1 : 0);
    const uint32_t asked_round = round - random() % (random() % 10 == 0 ? 2 * CW_TX_ROUNDS : CW_ROUNDS + 2);
    const uint32_t slot = random() % CW_MAX_SLOTS;
    const int known = cw_rounds_known(&pair, asked_session, asked_round, slot);
    const bool replayed = cw_rounds_admit(&pair, asked_session, asked_round, slot) == CW_REPLAYED;
    ASSERT_EQ(known != 0, replayed) << i << ": session " << asked_session << ", round " << asked_round;
    replays += replayed ? 1 : 0;
  }
  EXPECT_GT(replays, 50'000);
  EXPECT_LT(replays, 190'000);
}

TEST(BpfRounds, PauseOfTheProberMovesTheFloor) {
  cw_pair pair = {};
  cw_probe_tx tx = {};
  pair.interval_ns = 1000000;
  cw_rounds_leave(&pair, &tx, 1, 10, 0, 5000000, 1);
  EXPECT_EQ(pair.floor_round, 10u);
  cw_rounds_leave(&pair, &tx, 1, 11, 0, 7000000, 2);
  EXPECT_EQ(pair.floor_round, 10u);
  cw_rounds_leave(&pair, &tx, 1, 12, 0, 10000000, 3);
  EXPECT_EQ(pair.floor_round, 12u);
  cw_rounds_leave(&pair, &tx, 1, 12, 1, 19000000, 5);  // same round: no pause
  EXPECT_EQ(pair.floor_round, 12u);
  EXPECT_EQ(cw_round_mask_of(&pair.sent[12 & 7], 12), 3u);
  EXPECT_EQ(tx.t1[1][12 % CW_TX_ROUNDS], 19000000u);
  EXPECT_EQ(pair.round_jiffies, 3u) << "when the round began";
}

TEST(BpfSlotState, TransitionKeepsPortAndFlags) {
  cw_slot slot = {};
  slot.port = 50000;
  slot.flags = CW_SLOT_ASSIGNABLE;
  slot.state = CW_SLOT_UP;
  EXPECT_FALSE(cw_slot_transition(&slot, CW_SLOT_NEW, CW_SLOT_UP));
  EXPECT_TRUE(cw_slot_transition(&slot, CW_SLOT_UP, CW_SLOT_DEAD));
  EXPECT_EQ(slot.state, CW_SLOT_DEAD);
  EXPECT_EQ(slot.port, 50000);
  EXPECT_EQ(slot.flags, CW_SLOT_ASSIGNABLE);
}

TEST(BpfLiveness, AllPathsComeUpAndStayUp) {
  for (int slots : {1, 2, 4, 8, 16}) {
    SimConfig c;
    c.slots = slots;
    PairSim sim(c);
    sim.RunUntil(kStart + 3 * kSecond);
    EXPECT_EQ(sim.verdicts().size(), static_cast<size_t>(slots));
    EXPECT_EQ(sim.pair().live_mask, (1u << slots) - 1);
    EXPECT_TRUE(sim.Deaths().empty());
  }
}

TEST(BpfLiveness, OneDeadPathIsFoundWithinFourIntervals) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.slots = 3 + static_cast<int>(seed % 14);
    int victim = static_cast<int>(seed) % c.slots;
    uint64_t cut = kStart + 500 * kMs + seed * 37 * kUs;
    c.forward = DeadFrom(victim, cut);
    PairSim sim(c);
    sim.RunUntil(cut + kSecond);
    auto deaths = sim.Deaths();
    ASSERT_EQ(deaths.size(), 1u) << seed;
    EXPECT_EQ(deaths[0].slot, victim) << seed;
    EXPECT_LE(deaths[0].time - cut, 4 * kMs + 500 * kUs) << seed;
    EXPECT_EQ(sim.pair().live_mask, ((1u << c.slots) - 1) & ~(1u << victim));
  }
}

TEST(BpfLiveness, DeadPathComesBackAfterEightRounds) {
  SimConfig c;
  uint64_t cut = kStart + 500 * kMs, heal = cut + 700 * kMs;
  c.forward = DeadFrom(2, cut, heal);
  PairSim sim(c);
  sim.RunUntil(heal + kSecond);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  Verdict last = sim.verdicts().back();
  EXPECT_EQ(last.slot, 2);
  EXPECT_EQ(last.from, CW_SLOT_DEAD);
  EXPECT_EQ(last.to, CW_SLOT_UP);
  EXPECT_GE(last.time - heal, 7 * kMs);
  EXPECT_LE(last.time - heal, 10 * kMs);
  EXPECT_EQ(sim.pair().live_mask, 15u);
}

TEST(BpfLiveness, APathThatLosesEveryFourthPacketDoesNotComeBack) {
  SimConfig c;
  uint64_t cut = kStart + 500 * kMs, half_healed = cut + 500 * kMs;
  int count = 0;
  c.forward = [&](int s, uint64_t t, std::mt19937&) {
    if (s != 1 || t < cut) return true;
    return t >= half_healed && ++count % 4 != 0;
  };
  PairSim sim(c);
  sim.RunUntil(half_healed + 2 * kSecond);
  EXPECT_EQ(sim.Deaths().size(), 1u);
  EXPECT_EQ(sim.pair().slot[1].state, CW_SLOT_DEAD);
}

TEST(BpfLiveness, PathsThatNeverAnsweredAreNotJudged) {
  SimConfig c;
  c.forward = DeadFrom(3, 0);
  PairSim sim(c);
  sim.RunUntil(kStart + kSecond);
  EXPECT_TRUE(sim.Deaths().empty());
  EXPECT_EQ(sim.pair().slot[3].state, CW_SLOT_NEW);
  EXPECT_EQ(sim.pair().live_mask, 7u);
}

TEST(BpfLiveness, ReverseCutKillsNoForwardPath) {
  for (int victim = 0; victim < 4; ++victim) {
    SimConfig c;
    c.reverse = DeadFrom(victim, kStart + 300 * kMs);
    PairSim sim(c);
    sim.RunUntil(kStart + 3 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty());
  }
}

TEST(BpfLiveness, PeerOutagesKillNoPath) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.slots = 4 + static_cast<int>(seed % 5);
    c.queue = BurstyQueue(seed * 50 * kUs);
    c.peer_up = [](uint64_t t) { return t % (1500 * kMs) < 800 * kMs; };
    PairSim sim(c);
    sim.RunUntil(kStart + 10 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty()) << seed;
  }
}

TEST(BpfLiveness, PeerRestartKillsNoPath) {
  SimConfig c;
  PairSim sim(c);
  for (int i = 1; i <= 20; ++i) {
    sim.RunUntil(kStart + i * 100 * kMs + i * 70 * kUs);
    sim.RestartPeer();
  }
  sim.RunUntil(sim.now() + kSecond);
  EXPECT_TRUE(sim.Deaths().empty());
}

TEST(BpfLiveness, RestartOfOurAgentKillsNoPathAndBlindsNobody) {
  SimConfig c;
  uint64_t cut = kStart + 2 * kSecond;
  c.forward = DeadFrom(1, cut);
  PairSim sim(c);
  for (int i = 1; i <= 10; ++i) {
    sim.RunUntil(kStart + i * 100 * kMs + i * 70 * kUs);
    sim.RestartAgent();  // and rounds begin at 1 again
  }
  sim.RunUntil(cut);
  EXPECT_TRUE(sim.Deaths().empty());
  sim.RunUntil(cut + 100 * kMs);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  EXPECT_LE(sim.Deaths()[0].time - cut, 4 * kMs + 500 * kUs);
}

TEST(BpfLiveness, StallsOfTheProberKillNoPath) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.queue = BurstyQueue(300 * kUs);
    c.prober_runs = [seed](uint64_t t) { return t % (97 * kMs) < (60 + seed) * kMs; };
    PairSim sim(c);
    sim.RunUntil(kStart + 5 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty()) << seed;
  }
}

// When a prober goes on after a pause, so does all else that stood still with it, and one queue jumps.
TEST(BpfLiveness, AQueueThatJumpsBehindAPauseOfTheProberKillsNoPath) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.interval = 400 * kUs;
    constexpr uint64_t kEvery = 500 * kMs, kPause = 20 * kMs, kQueued = 900 * kUs;
    c.prober_runs = [=](uint64_t t) { return t % kEvery >= kPause; };
    // Full at the pause's end, empty again after twice as long; each time of another path.
    c.queue = [=](int s, uint64_t t, std::mt19937&) -> uint64_t {
      const uint64_t phase = t % kEvery;
      if (s != static_cast<int>(t / kEvery) % 4 || phase < kPause - kMs || phase > kPause + 2 * kQueued) return 0;
      return kQueued - (phase > kPause ? (phase - kPause) / 2 : 0);
    };
    PairSim sim(c);
    sim.RunUntil(kStart + 5 * kSecond + seed * 10 * kUs);
    EXPECT_TRUE(sim.Deaths().empty()) << seed;
  }
}

// A peer that was away finds what came meanwhile in one queue per path, and takes one after the other.
TEST(BpfLiveness, APeerThatWakesAndReadsQueueByQueueKillsNoPath) {
  for (uint64_t away = 2 * kMs; away <= 40 * kMs; away += 2 * kMs) {
    SimConfig c;
    c.interval = 400 * kUs;
    constexpr uint64_t kEvery = 100 * kMs;
    c.queue = [=](int s, uint64_t t, std::mt19937&) -> uint64_t {
      const uint64_t phase = t % kEvery;
      return phase < away ? away - phase + static_cast<uint64_t>(s) * 200 * kUs + phase / 1000 : 0;
    };
    PairSim sim(c);
    sim.RunUntil(kStart + 5 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty()) << away / kMs;
  }
}

TEST(BpfLiveness, APathThatDiesWhileThePeerIsAwayIsFoundWhenItIsBack) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.interval = 400 * kUs;
    const uint64_t gone = kStart + 500 * kMs, back = gone + seed * 3 * kMs;
    c.forward = DeadFrom(2, gone + kMs);
    c.peer_up = [=](uint64_t t) { return t < gone || t >= back; };
    PairSim sim(c);
    sim.RunUntil(back + kSecond);
    ASSERT_EQ(sim.Deaths().size(), 1u) << seed;
    EXPECT_EQ(sim.Deaths()[0].slot, 2);
    EXPECT_LE(sim.Deaths()[0].time - back, 4 * c.interval + 500 * kUs) << seed;
  }
}

// Pauses of the prober that are short enough for rounds to count between them hide no death.
TEST(BpfLiveness, ADeathAmongPausesIsFound) {
  SimConfig c;
  c.interval = 400 * kUs;
  const uint64_t cut = kStart + 500 * kMs;
  c.prober_runs = [](uint64_t t) { return t % (5 * kMs) >= 2 * kMs; };
  c.forward = DeadFrom(1, cut);
  PairSim sim(c);
  sim.RunUntil(cut + 100 * kMs);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  EXPECT_LE(sim.Deaths()[0].time - cut, 15 * kMs);
}

TEST(BpfLiveness, TimeInWhichNobodyWasHeardIsNobodysSilence) {
  cw_pair pair = {};
  cw_reply r = {};
  pair.interval_ns = 400'000;
  pair.live_mask = 7;
  pair.slot[0].heard_ns = 10 * kMs;
  pair.slot[1].heard_ns = 9 * kMs;
  pair.slot[2].heard_ns = 3 * kMs;
  pair.slot[5].heard_ns = 29 * kMs;  // not alive: what it says is old
  r.witness = 1;
  r.t2 = 30 * kMs;
  EXPECT_EQ(cw_liveness_away(&r, &pair), 20 * kMs - 400 * kUs) << "since slot 0 was heard";
  cw_liveness_excuse(&r, &pair, 20 * kMs - 400 * kUs);
  EXPECT_EQ(r.t2 - pair.slot[0].heard_ns, 400 * kUs);
  EXPECT_EQ(r.t2 - pair.slot[2].heard_ns, 7 * kMs + 400 * kUs) << "it was silent before";
  EXPECT_EQ(pair.slot[3].heard_ns, 0u) << "was never heard";
  EXPECT_EQ(pair.slot[5].heard_ns, 29 * kMs);
  cw_liveness_excuse(&r, &pair, kMs);
  EXPECT_EQ(pair.slot[0].heard_ns, r.t2) << "never later than now";
  pair.slot[0].heard_ns = r.t2 - 400 * kUs;
  EXPECT_EQ(cw_liveness_away(&r, &pair), 0u);
  r.t2 = 30 * kMs + 500 * kUs;
  EXPECT_EQ(cw_liveness_away(&r, &pair), 0u) << "within the 2.5 intervals";
  r.t2 = 5 * kMs;
  EXPECT_EQ(cw_liveness_away(&r, &pair), 0u) << "an older reply that comes later";
}

TEST(BpfLiveness, HalfOfThePathsNeedTheLongerLimit) {
  SimConfig c;
  uint64_t cut = kStart + 500 * kMs;
  c.forward = [cut](int s, uint64_t t, std::mt19937&) { return s >= 2 || t < cut; };
  PairSim sim(c);
  sim.RunUntil(cut + 12 * kMs);
  EXPECT_TRUE(sim.Deaths().empty());
  sim.RunUntil(cut + 25 * kMs);
  EXPECT_EQ(sim.Deaths().size(), 2u);
  EXPECT_EQ(sim.pair().live_mask, 12u);
}

TEST(BpfLiveness, BriefCommonStallOfHalfThePathsKillsNone) {
  SimConfig c;
  // For 8 ms out of 100 nothing gets through on half of the paths, as when a receive queue's CPU is away.
  c.forward = [](int s, uint64_t t, std::mt19937&) { return s % 2 == 0 || t % (100 * kMs) >= 8 * kMs; };
  PairSim sim(c);
  sim.RunUntil(kStart + 5 * kSecond);
  EXPECT_TRUE(sim.Deaths().empty());
}

TEST(BpfLiveness, BurstsOfQueueingKillNoPath) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.slots = 4 + static_cast<int>(seed % 9);
    c.queue = BurstyQueue(seed * 240 * kUs);  // up to 2.9 ms, against rounds of 1 ms
    PairSim sim(c);
    sim.RunUntil(kStart + 5 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty()) << seed;
  }
}

TEST(BpfLiveness, APathThatStandsStillAtTimesIsMistakenForDeadOnceOrTwice) {
  size_t deaths = 0;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.queue = StandsStill(11 * kMs);
    PairSim sim(c);
    sim.RunUntil(kStart + 20 * kSecond);
    deaths += sim.Deaths().size();
  }
  EXPECT_LE(deaths, 24u) << "each of 12 paths once or twice, in 720 pauses";
}

// Ten pauses a minute apart: what the first ones taught is known at the next ones.
TEST(BpfLiveness, APathThatStandsStillOnceAMinuteIsMistakenForDeadOnce) {
  SimConfig c;
  c.slots = 3;
  c.queue = [](int s, uint64_t t, std::mt19937&) -> uint64_t {
    const uint64_t into = (t - kStart) % (60 * kSecond);
    return s == 1 && into >= 30 * kSecond && into < 30 * kSecond + 8 * kMs ? 8 * kMs - (into - 30 * kSecond) : 0;
  };
  PairSim sim(c);
  sim.RunUntil(kStart + 600 * kSecond);
  EXPECT_GE(sim.Deaths().size(), 1u);
  EXPECT_LE(sim.Deaths().size(), 3u);
}

// What is lost while a path is silent is lost to data, too: to leave it was right, and stays so.
TEST(BpfLiveness, APathThatLosesWhatItDoesNotDeliverTeachesNoPatience) {
  SimConfig c;
  c.slots = 3;
  c.forward = [](int s, uint64_t t, std::mt19937&) { return s != 1 || (t - kStart) % kSecond < 990 * kMs; };
  PairSim sim(c);
  sim.RunUntil(kStart + 20 * kSecond);
  EXPECT_EQ(sim.Deaths().size(), 20u) << "each outage of 10 ms";
  EXPECT_EQ(sim.pair().patience_ns[1], 0u);
  for (const Verdict& death : sim.Deaths()) EXPECT_LE((death.time - kStart) % kSecond, 990 * kMs + 4500 * kUs);
}

TEST(BpfLiveness, WhatCameLateWasHeldBack) {
  EXPECT_TRUE(cw_liveness_held(0x0f, 0xff, 0, 4));   // all of the last four rounds are there at once
  EXPECT_FALSE(cw_liveness_held(0x01, 0xff, 0, 8));  // only the newest of eight
  EXPECT_TRUE(cw_liveness_held(0x01, 0xff, 0, 1));   // the next one, however late
  EXPECT_TRUE(cw_liveness_held(0x0c, 0xff, 2, 4));   // younger ones may be under way
  EXPECT_TRUE(cw_liveness_held(0x05, 0x0f, 0, 4));   // a full queue lost two
  EXPECT_FALSE(cw_liveness_held(0x01, 0x07, 0, 4));
  EXPECT_TRUE(cw_liveness_held(0x01, 0x01, 0, 8)) << "what was not sent is not missing";
}

TEST(BpfLiveness, WhatMadeItPatientIsForgotten) {
  SimConfig c;
  const uint64_t calm = kStart + 5 * kSecond, cut = calm + 900 * kSecond;
  c.slots = 3;
  c.queue = StandsStill(11 * kMs, calm);
  c.forward = DeadFrom(1, cut);
  PairSim sim(c);
  sim.RunUntil(calm);
  const size_t before = sim.Deaths().size();
  EXPECT_GT(sim.pair().patience_ns[1], 3u * kMs);
  sim.RunUntil(cut + 100 * kMs);
  ASSERT_EQ(sim.Deaths().size(), before + 1);
  EXPECT_LE(sim.Deaths().back().time - cut, 4 * kMs + 500 * kUs);
}

TEST(BpfLiveness, DeadPathUnderQueueingIsStillFound) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.slots = 4 + static_cast<int>(seed % 9);
    uint64_t peak = seed * 150 * kUs;  // up to 6 ms: longer than the window of 8 rounds can tell from T1 alone
    c.queue = BurstyQueue(peak);
    uint64_t cut = kStart + 700 * kMs + seed * 111 * kUs;
    c.forward = DeadFrom(1, cut);
    PairSim sim(c);
    sim.RunUntil(cut + 200 * kMs);
    auto deaths = sim.Deaths();
    ASSERT_EQ(deaths.size(), 1u) << seed;
    EXPECT_EQ(deaths[0].slot, 1);
    EXPECT_LE(deaths[0].time - cut, 5 * kMs + 3 * peak) << seed;
  }
}

// A queue that stands is no reason to wait: the path delivers, only late.
TEST(BpfLiveness, DeadPathBehindAStandingQueueIsFoundAsFastAsAnIdleOne) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SimConfig c;
    c.seed = seed;
    uint64_t cut = kStart + 700 * kMs + seed * 111 * kUs, depth = seed * 400 * kUs;  // up to 16 ms
    c.queue = [=](int s, uint64_t, std::mt19937& random) -> uint64_t {
      return s == 1 || s == 2 ? depth + random() % (100 * kUs) : 0;
    };
    // Cut behind the queue: what stands in it is lost.
    c.forward = [=](int s, uint64_t t, std::mt19937&) { return s != 1 || t + depth < cut; };
    PairSim sim(c);
    sim.RunUntil(cut + 200 * kMs);
    auto deaths = sim.Deaths();
    ASSERT_EQ(deaths.size(), 1u) << seed;
    EXPECT_EQ(deaths[0].slot, 1);
    EXPECT_LE(deaths[0].time - cut, 5 * kMs + 2 * depth) << seed;  // replies may stand in the other queue
  }
}

// Two links' worth of traffic on one: the queue grows as long as the burst lasts, and every path goes on delivering.
TEST(BpfLiveness, QueuesThatGrowAsFastAsTimeKillNoPath) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimConfig c;
    c.seed = seed;
    c.queue = [=](int s, uint64_t t, std::mt19937&) -> uint64_t {
      uint64_t phase = (t + static_cast<uint64_t>(s) * 31 * kMs) % (100 * kMs + seed * kMs);
      return phase < 10 * kMs ? phase : phase < 20 * kMs ? 20 * kMs - phase : 0;
    };
    PairSim sim(c);
    sim.RunUntil(kStart + 5 * kSecond);
    EXPECT_TRUE(sim.Deaths().empty()) << seed;
  }
}

TEST(BpfLiveness, RandomLossOfAFewPercentKillsNoPath) {
  SimConfig c;
  c.slots = 8;
  c.forward = [](int, uint64_t, std::mt19937& random) { return random() % 100 >= 2; };
  c.reverse = [](int, uint64_t, std::mt19937& random) { return random() % 100 >= 2; };
  c.seed = 3;
  PairSim sim(c);
  sim.RunUntil(kStart + 10 * kSecond);
  // Three in a row by chance: 8e-6 per path and round, 80,000 of those here.
  EXPECT_LE(sim.Deaths().size(), 3u);
}

TEST(BpfLiveness, AcknowledgedDataVetoesProbesThatAreLost) {
  SimConfig c;
  bool probe = false;
  c.slots = 4;
  // From some time on all probes of slot 0 are lost, and data passes: the sim asks for a probe, then for data.
  c.forward = [&](int s, uint64_t t, std::mt19937&) {
    if (s != 0 || t < kStart + 500 * kMs) return true;
    probe = !probe;
    return probe;  // SendProbe asks for data first
  };
  c.data = [](int s, uint64_t t) { return s == 0 && t >= kStart + 500 * kMs && t < kStart + kSecond; };
  PairSim sim(c);
  sim.RunUntil(kStart + kSecond);
  EXPECT_TRUE(sim.Deaths().empty());
  EXPECT_GT(sim.pair().slot[0].acked_round, 900u);
}

TEST(BpfLiveness, DeadPathWithDataIsNotVetoedForLong) {
  SimConfig c;
  uint64_t cut = kStart + 500 * kMs;
  c.forward = DeadFrom(0, cut);
  c.data = [](int s, uint64_t) { return s == 0; };
  PairSim sim(c);
  sim.RunUntil(cut + 100 * kMs);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  EXPECT_LE(sim.Deaths()[0].time - cut, 4 * kMs + 500 * kUs);
}

TEST(BpfLiveness, RoundsAndClocksMayWrap) {
  SimConfig c;
  uint64_t cut = kStart + 500 * kMs;
  c.peer_offset = -static_cast<int64_t>(kStart + 300 * kMs);  // T2 passes 0 during the run
  c.forward = DeadFrom(3, cut);
  PairSim sim(c);
  sim.RunUntil(cut + 100 * kMs);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  EXPECT_EQ(sim.Deaths()[0].slot, 3);
}

TEST(BpfLiveness, PeerWhoseClockBeganAnewIsJudgedAgain) {
  SimConfig c;
  uint64_t cut = kStart + 800 * kMs;
  c.forward = DeadFrom(2, cut);
  PairSim sim(c);
  sim.RunUntil(kStart + 500 * kMs);
  for (int s = 0; s < 4; ++s) sim.pair().slot[s].heard_ns += 5 * kSecond;  // as if the clock had been ahead
  sim.RunUntil(kStart + kSecond);
  ASSERT_EQ(sim.Deaths().size(), 1u);
  EXPECT_LE(sim.Deaths()[0].time - cut, 4 * kMs + 500 * kUs);
}

TEST(BpfLiveness, JumpsForget) {
  cw_slot slot = {};
  cw_slot_raw(&slot, 1000000);
  EXPECT_EQ(slot.jump_ns, 0u);
  cw_slot_raw(&slot, 5000000);
  EXPECT_EQ(slot.jump_ns, 4000000u);
  cw_slot_raw(&slot, 5000000 + 2 * kSecond);  // a clock was set
  cw_slot_raw(&slot, 1000000);
  EXPECT_EQ(slot.jump_ns, 4000000u);
  for (int i = 0; i < 1024; ++i) cw_slot_raw(&slot, 1000000);
  EXPECT_LT(slot.jump_ns, 1600000u);
  for (int i = 0; i < 1024 * 20; ++i) cw_slot_raw(&slot, 1000000);
  EXPECT_LT(slot.jump_ns, 1024u);
}

}  // namespace
}  // namespace cw::test
