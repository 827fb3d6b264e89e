// SPDX-License-Identifier: Apache-2.0
// Two hosts' rules against each other, with a model of which pairs of NICs answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/time_units.h"
#include "userspace/control/nic_failover.h"

namespace cw::control {
namespace {

class TwoHosts : public ::testing::Test {
 protected:
  struct Host {
    explicit Host(const std::string& host) : name(host), rule(host) {}
    std::string name;
    NicFailover rule;
    std::vector<NicPair> pairs;
    NicStep step;
    bool acts = true;
    uint32_t session = 100;  // 0: not told
    bool mute = false;       // its reports are lost
    bool stopped = false;    // no agent, but its programs answer and put back
  };
  static Addr A(int host, int nic) { return Addr::FromV4(0x0a000000u + static_cast<uint32_t>(host << 8 | nic)); }

  explicit TwoHosts(int nics = 2) {
    for (int h : {0, 1}) {
      for (int local = 0; local < nics; ++local) {
        for (int remote = 0; remote < nics; ++remote) {
          const auto index = static_cast<uint32_t>(host(h).pairs.size());
          host(h).pairs.push_back({.index = index,
                                   .key = {A(h, local), A(1 - h, remote)},
                                   .peer = host(1 - h).name,
                                   .interval_ns = kMs,
                                   .last_reply_ns = 1});
        }
      }
    }
  }
  Host& host(int h) { return h == 0 ? near_ : far_; }
  bool Answers(const PairKey& key) const { return !dead_.contains(key.local) && !dead_.contains(key.remote) && !gone_; }
  // Every 10 ms: replies, ticks, reports (lost where the pair does not answer).
  void Run(int64_t ms) {
    for (const int64_t end_ns = now_ns_ + ms * kMs; now_ns_ < end_ns;) {
      now_ns_ += 10 * kMs;
      for (int h : {0, 1}) {
        for (NicPair& pair : host(h).pairs) {
          if (!Answers(pair.key) || paused_) continue;
          pair.last_reply_ns = now_ns_;
          pair.session = host(1 - h).session;
        }
      }
      for (int h : {0, 1}) {
        Host& from = host(h);
        if (from.stopped) continue;
        from.step = from.rule.Tick(from.pairs, from.acts, now_ns_);
        changes_ += static_cast<int>(from.step.changes.size());
        for (const NicStep::Outgoing& out : from.step.reports) {
          ++reports_;
          if (!Answers(from.pairs[out.via].key) || from.mute || host(1 - h).stopped) continue;
          host(1 - h).rule.OnReport(from.name, out.report, now_ns_);
        }
        if (!unsettled_) Check();
      }
    }
  }
  // The host begins anew with nothing; leaves: the next agent takes its rules over.
  void Restart(int h, bool leaves) {
    Host& again = host(h);
    const auto left = again.step.carries;
    again.rule = NicFailover(again.name);
    if (!leaves) again.step = {};
    ++again.session;
    for (NicPair& pair : again.pairs) {
      pair.last_reply_ns = 0;
      pair.drained = pair.drained && leaves;
    }
    if (!leaves) return;
    for (const auto& [carry, key] : left) again.rule.Adopt(key, carry);
  }
  void DrainNear(bool drained) {
    for (NicPair& pair : near_.pairs) pair.drained = drained && pair.key.local == A(0, 0);
  }
  // Whatever one sends by another pair the other one puts back.
  void Check() {
    for (int h : {0, 1}) {
      std::set<std::pair<PairKey, int>> used;  // no two carried pairs look alike
      for (const auto& [carry, key] : host(h).step.carries) {
        EXPECT_TRUE(used.insert({carry.carrier, carry.tag}).second);
        if (!carry.send) continue;
        const auto& there = host(1 - h).step.carries;
        const PairKey mirrored = {carry.carrier.remote, carry.carrier.local}, pair = {key.remote, key.local};
        EXPECT_TRUE(std::any_of(there.begin(), there.end(), [&](const auto& entry) {
          return entry.first.carrier == mirrored && entry.first.tag == carry.tag && entry.second == pair;
        })) << key.local.ToString();
      }
    }
  }
  int Carried(int h) {
    int n = 0;
    for (const auto& [carry, key] : host(h).step.carries) n += carry.send ? 1 : 0;
    return n;
  }
  // What carries a pair of the near host.
  PairKey CarrierOf(const PairKey& pair) {
    for (const auto& [carry, key] : near_.step.carries) {
      if (key == pair && carry.send) return carry.carrier;
    }
    return {};
  }

  Host near_{"a"}, far_{"b"};
  std::set<Addr> dead_;
  bool gone_ = false, paused_ = false;
  bool unsettled_ = false;  // one has just lost its rules, which the other does not know yet
  int64_t now_ns_ = 1000 * kMs;
  int changes_ = 0, reports_ = 0;
};

TEST_F(TwoHosts, NothingIsSaidWhileAllAnswers) {
  Run(5000);
  EXPECT_EQ(changes_, 0);
  EXPECT_EQ(reports_, 0);
  EXPECT_EQ(Carried(0) + Carried(1), 0);
}

TEST_F(TwoHosts, ADeadNicsPairsAreCarriedByThePeersSameNicBothWays) {
  for (int h : {0, 1}) {
    dead_ = {A(h, 0)};
    Run(150);
    EXPECT_EQ(Carried(0), 2) << h;
    EXPECT_EQ(Carried(1), 2) << h;
    const PairKey lost = {A(0, 0), A(1, 0)};
    const PairKey carrier = h == 0 ? PairKey{A(0, 1), A(1, 0)} : PairKey{A(0, 0), A(1, 1)};
    EXPECT_EQ(CarrierOf(lost), carrier) << h;
    dead_.clear();
    Run(30'000);
    EXPECT_EQ(Carried(0) + Carried(1), 0) << h;
    EXPECT_TRUE(near_.step.carries.empty());
  }
}

// A host with a second NIC of a smaller MTU, the leader or the follower.
TEST_F(TwoHosts, ANicThatIsTooSmallForThePacketsCarriesNone) {
  for (int h : {0, 1}) {
    for (NicPair& pair : host(h).pairs) pair.mtu = pair.key.local == A(h, 1) ? 1500 : 4500;
    dead_ = {A(h, 0)};
    Run(300);
    EXPECT_EQ(Carried(0) + Carried(1), 0) << h;
    for (NicPair& pair : host(h).pairs) pair.mtu = 4500;  // somebody raised it
    Run(300);
    EXPECT_EQ(Carried(h), 2) << h;
    for (NicPair& pair : host(h).pairs) pair.mtu = pair.key.local == A(h, 1) ? 1500 : 4500;
    Run(300);
    EXPECT_EQ(Carried(0) + Carried(1), 0) << h << ": it goes on no longer";
    for (NicPair& pair : host(h).pairs) pair.mtu = 9000;
    dead_.clear();
    Run(30'000);
  }
}

TEST_F(TwoHosts, ALossSaysThatNoOtherNicIsLargeEnough) {
  for (NicPair& pair : near_.pairs) pair.mtu = pair.key.local == A(0, 1) ? 1500 : 4500;
  Run(100);
  dead_ = {A(0, 0)};
  std::string text;
  for (int i = 0; i < 30 && text.empty(); ++i) {
    Run(10);
    if (!near_.step.changes.empty()) text = near_.step.changes[0].text;
  }
  EXPECT_NE(text.find("no other NIC has an MTU"), std::string::npos) << text;
}

TEST(CarriersMtu, CountsUpToTheLargestRoCEPacket) {
  EXPECT_TRUE(FitsCarrier(1500, 1500));
  EXPECT_TRUE(FitsCarrier(1500, 9000));
  EXPECT_TRUE(FitsCarrier(9000, 4500)) << "no RoCE packet is larger than 4192";
  EXPECT_FALSE(FitsCarrier(4500, 1500));
  EXPECT_FALSE(FitsCarrier(9000, 4191));
  EXPECT_TRUE(FitsCarrier(4500, 0)) << "not known";
}

TEST_F(TwoHosts, DeadNicsAtBothEndsShareTheOnePairThatIsLeft) {
  dead_ = {A(0, 0), A(1, 1)};
  Run(300);
  EXPECT_EQ(Carried(0), 3);
  EXPECT_EQ(Carried(1), 3);
  for (const auto& [carry, key] : near_.step.carries) EXPECT_EQ(carry.carrier, (PairKey{A(0, 1), A(1, 0)}));
}

TEST_F(TwoHosts, ALinkThatIsDownIsBelievedAtOnce) {
  Run(100);
  dead_ = {A(0, 0)};
  for (NicPair& pair : near_.pairs) pair.link_up = pair.key.local != A(0, 0);
  Run(30);
  EXPECT_GT(Carried(0), 0);
  for (NicPair& pair : near_.pairs) pair.link_up = true;
  Run(5000);
  EXPECT_EQ(Carried(0), 2) << "up, but it does not answer";
}

// Idle pairs are probed rarely: what fell silent with the pair must not be its carrier, and a pair that begins to carry
// is not given up before its first probe at the new pace.
TEST_F(TwoHosts, TheCarrierHasAnsweredSinceAndIsGivenTimeToSpeedUp) {
  for (Host* each : {&near_, &far_}) {
    for (NicPair& pair : each->pairs) {
      if (pair.index != 0) pair.interval_ns = 100 * kMs;
    }
  }
  Run(500);
  dead_ = {A(0, 0)};
  Run(160);
  EXPECT_EQ(CarrierOf({A(0, 0), A(1, 0)}), (PairKey{A(0, 1), A(1, 0)}));
  for (Host* each : {&near_, &far_}) {
    for (NicPair& pair : each->pairs) pair.interval_ns = kMs;
  }
  paused_ = true;  // the next probe is not due yet
  Run(90);
  paused_ = false;
  EXPECT_EQ(CarrierOf({A(0, 0), A(1, 0)}), (PairKey{A(0, 1), A(1, 0)}));
}

TEST_F(TwoHosts, ADeadPeerIsNoDeadNic) {
  Run(100);
  gone_ = true;
  Run(5000);
  EXPECT_EQ(changes_, 0);
  gone_ = false;
  Run(1000);
  EXPECT_EQ(changes_, 0);
}

TEST_F(TwoHosts, ItReturnsAfterTheHoldTimeWhichGrowsWithFlapping) {
  int64_t last_ms = 0;
  for (int flap = 0; flap < 4; ++flap) {
    dead_ = {A(0, 0)};
    Run(200);
    ASSERT_EQ(Carried(0), 2);
    dead_.clear();
    int64_t ms = 0;
    for (; Carried(0) > 0 && ms < 60'000; ms += 100) Run(100);
    EXPECT_GE(ms, flap == 0 ? 1900 : 2 * last_ms - 400) << flap;
    EXPECT_LE(ms, flap == 0 ? 2500 : 2 * last_ms + 400) << flap;
    last_ms = ms;
    Run(6000);
  }
}

TEST_F(TwoHosts, ADrainedNicIsLeftBothWaysAndTakenBackAtOnce) {
  Run(100);
  for (int h : {0, 1}) {  // the host that chooses the carrier, and the other one
    for (NicPair& pair : host(h).pairs) pair.drained = pair.key.local == A(h, 0);
    Run(100);
    EXPECT_EQ(Carried(0), 2) << h;
    EXPECT_EQ(Carried(1), 2) << h;
    for (const auto& [carry, key] : host(h).step.carries) {
      EXPECT_EQ(key.local, A(h, 0));
      EXPECT_EQ(carry.carrier.local, A(h, 1)) << "the drained NIC carries nothing";
    }
    for (NicPair& pair : host(h).pairs) pair.drained = false;
    Run(100);
    EXPECT_EQ(Carried(0) + Carried(1), 0) << h;
    EXPECT_EQ(changes_, 0) << "nothing is lost";
    Run(8000);
  }
}

TEST_F(TwoHosts, AFailureOutranksADrain) {
  Run(100);
  for (NicPair& pair : near_.pairs) pair.drained = pair.key.local == A(0, 1);
  Run(100);
  EXPECT_EQ(Carried(0), 2);
  dead_ = {A(0, 0)};
  Run(1000);
  EXPECT_EQ(CarrierOf({A(0, 0), A(1, 0)}), (PairKey{A(0, 1), A(1, 0)})) << "nothing else lives";
  EXPECT_EQ(CarrierOf({A(0, 1), A(1, 0)}), PairKey{}) << "and its own packets go by itself";
}

class ThreeNics : public TwoHosts {
 protected:
  ThreeNics() : TwoHosts(3) {}
};

TEST_F(ThreeNics, ACarrierThatIsDrainedGivesWayToAnother) {
  dead_ = {A(0, 0)};
  Run(1000);
  const Addr carrier = CarrierOf({A(0, 0), A(1, 0)}).local;
  ASSERT_TRUE(carrier == A(0, 1) || carrier == A(0, 2));
  for (NicPair& pair : near_.pairs) pair.drained = pair.key.local == carrier;
  Run(200);
  EXPECT_EQ(CarrierOf({A(0, 0), A(1, 0)}).local, carrier == A(0, 1) ? A(0, 2) : A(0, 1));
  EXPECT_EQ(CarrierOf({carrier, A(1, 0)}).local, carrier == A(0, 1) ? A(0, 2) : A(0, 1));
}

TEST_F(TwoHosts, InObserveModeOnlyVerdicts) {
  far_.acts = false;
  dead_ = {A(0, 0)};
  Run(1000);
  EXPECT_GT(changes_, 0);
  EXPECT_EQ(Carried(0) + Carried(1), 0) << "the peer puts nothing back, so nothing may be sent";
  far_.acts = true;
  Run(200);
  EXPECT_EQ(Carried(0), 2);
  near_.acts = false;
  Run(200);
  EXPECT_EQ(Carried(0) + Carried(1), 0);
}

TEST_F(TwoHosts, APairWithAQueuePairThatLooksLikeATagCarriesNothing) {
  dead_ = {A(0, 0)};
  for (int h : {0, 1}) {
    for (NicPair& pair : near_.pairs) pair.can_carry = h != 0;
    for (NicPair& pair : far_.pairs) pair.can_carry = h != 1;
    Run(1000);
    EXPECT_EQ(Carried(0) + Carried(1), 0) << h;
  }
}

TEST_F(TwoHosts, WhatAnEarlierAgentLeftGoesOn) {
  dead_ = {A(0, 0)};
  Run(200);
  const auto left = near_.step.carries;
  ASSERT_EQ(left.size(), 2u);
  near_.rule = NicFailover("a");
  for (NicPair& pair : near_.pairs) pair.last_reply_ns = Answers(pair.key) ? now_ns_ : 0;
  for (const auto& [carry, key] : left) near_.rule.Adopt(key, carry);
  Run(10);
  EXPECT_EQ(near_.step.carries, left);
  Run(3000);
  EXPECT_EQ(Carried(0), 2);
  dead_.clear();
  Run(5000);
  EXPECT_EQ(Carried(0) + Carried(1), 0);
}

// The host with the drain chooses the carrier, rebooted, and has nothing to say of its own accord.
TEST_F(TwoHosts, AHostThatRebootsDuringADrainIsNotSentCarriedPacketsForEver) {
  DrainNear(true);
  Run(1000);
  ASSERT_EQ(Carried(1), 2);
  Restart(0, /*leaves=*/false);
  unsettled_ = true;
  Run(300);
  unsettled_ = false;
  EXPECT_EQ(Carried(1), 0) << "told that there is no such rule";
  Run(10'000);
  EXPECT_EQ(Carried(0) + Carried(1), 0);
  EXPECT_TRUE(far_.step.carries.empty());
}

TEST_F(TwoHosts, AHostThatRebootsWhileTheOtherDrainsAgreesAnew) {
  DrainNear(true);
  Run(1000);
  ASSERT_EQ(Carried(0), 2);
  Restart(1, /*leaves=*/false);
  unsettled_ = true;
  Run(300);
  unsettled_ = false;
  Run(10'000);
  EXPECT_EQ(Carried(0), 2);
  EXPECT_EQ(Carried(1), 2);
}

// As an agent of an earlier release does: it has no such rule, and does not say so.
TEST_F(TwoHosts, ANewSessionOfThePeerHasToConfirmWhatWasAgreed) {
  for (const int h : {0, 1}) {
    DrainNear(true);
    Run(1000);
    ASSERT_EQ(Carried(1 - h), 2);
    Restart(h, /*leaves=*/false);
    host(h).mute = true;
    unsettled_ = true;
    Run(3900);
    EXPECT_EQ(Carried(1 - h), 2) << "an agent that was started anew takes as long until it is heard";
    Run(200);
    EXPECT_EQ(Carried(1 - h), 0) << h;
    unsettled_ = false;
    Run(2000);
    host(h).mute = false;
    DrainNear(false);
    Run(20'000);
    ASSERT_EQ(Carried(0) + Carried(1), 0);
  }
}

TEST_F(TwoHosts, WithoutReportsAndWithProbesThatPassPacketsGoByTheirOwnNic) {
  DrainNear(true);
  Run(1000);
  near_.session = far_.session = 0;
  Restart(0, /*leaves=*/false);
  near_.session = 0;
  near_.mute = true;
  unsettled_ = true;
  Run(6000);
  EXPECT_EQ(Carried(1), 0);
}

// Programs taken away (cwagentd --detach, the package removed), or the host is down: no pair answers any more.
TEST_F(TwoHosts, APeerThatAnswersByNoPairPutsNothingBack) {
  for (const bool drain : {true, false}) {
    DrainNear(drain);
    if (!drain) dead_ = {A(0, 0)};
    Run(1000);
    ASSERT_EQ(Carried(0), 2);
    gone_ = true;
    Run(4000);
    EXPECT_EQ(Carried(0), 2) << "it may be back at once";
    Run(2000);
    EXPECT_EQ(Carried(0), 0) << drain;
    gone_ = false;
    Run(500);
    EXPECT_EQ(Carried(0), 2) << "back, with its rules";
  }
}

TEST_F(TwoHosts, ThePeersProgramsPutBackWithoutItsAgentWhileANicIsDead) {
  dead_ = {A(0, 0)};
  Run(1000);
  far_.stopped = true;
  Run(20'000);
  EXPECT_EQ(Carried(0), 2);
}

TEST_F(TwoHosts, AnAgentThatIsStartedAnewInterruptsNothing) {
  for (const int h : {0, 1}) {
    dead_ = {A(0, 0)};
    Run(1000);
    ASSERT_EQ(Carried(1 - h), 2);
    Restart(h, /*leaves=*/true);
    for (int i = 0; i < 500; ++i) {
      Run(10);
      ASSERT_EQ(Carried(1 - h), 2) << h << " after " << i * 10 << " ms";
    }
    EXPECT_EQ(Carried(h), 2);
    dead_.clear();
    Run(70'000);
    ASSERT_EQ(Carried(0) + Carried(1), 0);
  }
}

TEST_F(TwoHosts, LostReportsAreMadeGood) {
  dead_ = {A(0, 0)};
  Run(60);
  gone_ = true;  // just when they agree
  Run(40);
  gone_ = false;
  Run(300);
  EXPECT_EQ(Carried(0), 2);
  EXPECT_EQ(Carried(1), 2);
}

struct OneNicEach : TwoHosts {
  OneNicEach() : TwoHosts(1) {}
};

TEST_F(OneNicEach, NothingCanBeDone) {
  Run(100);
  dead_ = {A(0, 0)};
  Run(1000);
  EXPECT_EQ(changes_ + reports_, 0);
}

}  // namespace
}  // namespace cw::control
