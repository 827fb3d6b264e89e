// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/discovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/escaping.h"
#include "tests/unit/probe_traced_fabric.h"
#include "userspace/probe/end_proof.h"

namespace cw::probe {
namespace {

TEST(Discovery, FindsEachPathOnceForTwoToEightSpines) {
  int missed = 0, runs = 0;
  for (int spines = 1; spines <= 8; ++spines) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      TracedFabric f{.spines = spines, .salt = static_cast<uint32_t>(seed * 7919)};
      Discovery d({.seed = seed}, {});
      int64_t now = 0;
      SimulateDiscovery(d, f, now, 10 * kSecond);
      ASSERT_TRUE(d.table().valid);
      EXPECT_EQ(d.table().paths.size(), SpinesOf(d.table(), f).size()) << "one slot per path";
      for (const Path& p : d.table().paths) {
        EXPECT_TRUE(p.known);
        EXPECT_EQ(3u, p.hops.size());
      }
      ++runs;
      missed += spines - static_cast<int>(d.table().paths.size());
      EXPECT_LE(d.ports_traced(), 60);
      EXPECT_TRUE(spines > 1 || d.ports_traced() <= 20) << "one path needs few ports";
    }
  }
  EXPECT_LE(missed, 4) << "of " << runs << " tables, each with a chance of about 1 % to miss one path";
}

TEST(Discovery, LostAnswersAreTriedAgain) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    TracedFabric f{.spines = 4, .lost = 0.1};
    f.random.seed(seed);
    Discovery d({.seed = seed}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, 30 * kSecond);
    ASSERT_TRUE(d.table().valid);
    int known = 0;
    std::set<int> spines;
    for (const Path& p : d.table().paths) {
      known += p.known;
      if (p.known) spines.insert(f.SpineOf(p.port));
    }
    EXPECT_EQ(4, known);
    EXPECT_EQ(4u, spines.size());
  }
}

TEST(Discovery, WithoutIcmpEveryPortIsItsOwnUnknownPath) {
  TracedFabric f{.spines = 4, .leaves_silent = true};
  f.silent_spines = {0, 1, 2, 3};
  Discovery d({}, {});
  int64_t now = 0;
  const int sent = SimulateDiscovery(d, f, now, 3 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(8u, d.table().paths.size());
  std::set<uint16_t> ports;
  for (const Path& p : d.table().paths) {
    EXPECT_FALSE(p.known);
    ports.insert(p.port);
  }
  EXPECT_EQ(8u, ports.size());
  EXPECT_LE(sent, 10 * 4 * 3) << "silence is not asked for ever";
  EXPECT_EQ(std::nullopt, d.Fold(d.table().paths[0].port));
  // ICMP is switched on: the next verification finds out.
  f.leaves_silent = false;
  f.silent_spines.clear();
  SimulateDiscovery(d, f, now, 60 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size());
  for (const Path& p : d.table().paths) EXPECT_TRUE(p.known);
}

TEST(Discovery, ASilentSpineInBetweenIsNotFoldedByGuess) {
  TracedFabric f{.spines = 4, .leaves_silent = true};
  f.silent_spines = {2};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  ASSERT_TRUE(d.table().valid);
  std::set<int> known;
  for (const Path& p : d.table().paths) {
    if (p.known) known.insert(f.SpineOf(p.port));
  }
  EXPECT_TRUE(known.empty()) << "with a silent first hop no path is complete";
  f.leaves_silent = false;
  Discovery e({}, {});
  SimulateDiscovery(e, f, now, 60 * kSecond);
  std::set<int> unknown;
  known.clear();
  for (const Path& p : e.table().paths) (p.known ? known : unknown).insert(f.SpineOf(p.port));
  EXPECT_EQ((std::set<int>{0, 1, 3}), known);
  EXPECT_EQ((std::set<int>{2}), unknown);
  EXPECT_LE(e.table().paths.size(), 12u);
}

TEST(Discovery, AChangedRouteInvalidatesTheTableAndItIsBuiltAnew) {
  TracedFabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  ASSERT_TRUE(d.table().valid);
  d.TakeEvents();
  const uint64_t before = d.table().generation;
  SimulateDiscovery(d, f, now, 65 * kSecond);
  EXPECT_TRUE(d.TakeEvents().empty()) << "nothing changed";
  for (const Path& p : d.table().paths) EXPECT_LE(now - p.verified_ns, 32 * kSecond);
  f.salt = 12345;  // every port hashes anew
  bool was_invalid = false;
  for (int i = 0; i < 40'000 && !(was_invalid && d.table().valid); ++i) {
    SimulateDiscovery(d, f, now, kMs);
    was_invalid = was_invalid || !d.table().valid;
  }
  const auto events = d.TakeEvents();
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kInvalid));
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kTable));
  ASSERT_TRUE(d.table().valid);
  EXPECT_GT(d.table().generation, before);
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
}

// A spine goes, the hash is over three, and comes back half a second later: the usual verification would lean on the
// table of three for half a minute.
TEST(Discovery, WhileTheFabricIsInMotionItIsTracedOften) {
  TracedFabric f;
  Discovery d({.seed = 4}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 2 * kSecond);
  ASSERT_EQ(4u, d.table().paths.size());
  EXPECT_FALSE(d.InMotion());
  f.spines = 3;
  d.Doubt(now);  // some path died
  SimulateDiscovery(d, f, now, 3 * kSecond);
  EXPECT_TRUE(d.InMotion());
  EXPECT_EQ(3u, d.table().paths.size());
  f.spines = 4;
  SimulateDiscovery(d, f, now, 4 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size()) << "without a doubt, by the hurried verification";
  EXPECT_TRUE(d.InMotion());
  d.TakeEvents();
  SimulateDiscovery(d, f, now, 70 * kSecond);
  EXPECT_FALSE(d.InMotion());
  const auto events = d.TakeEvents();
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kCalm));
  EXPECT_EQ(0, Count(events, DiscoveryEvent::Kind::kInvalid));
}

TEST(Discovery, DoubtsCostOneLookASecond) {
  TracedFabric f;
  Discovery d({.seed = 4}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 2 * kSecond);
  int sent = 0;
  for (int i = 0; i < 100; ++i) {  // a path that flaps
    d.Doubt(now);
    sent += SimulateDiscovery(d, f, now, 10 * kMs);
  }
  EXPECT_GE(sent, 4 * 3);
  EXPECT_LE(sent, 2 * 4 * 4) << "four paths, at most four TTLs, twice";
  EXPECT_FALSE(d.InMotion());
}

TEST(Discovery, ASilentlyDeadSpineIsNoReasonToRebuild) {
  TracedFabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  const PathTable before = d.table();
  d.TakeEvents();
  f.cut_spines = {1};
  SimulateDiscovery(d, f, now, 100 * kSecond);
  const std::vector<DiscoveryEvent> events = d.TakeEvents();
  EXPECT_EQ(events.size(), 1U);
  EXPECT_EQ(Count(events, DiscoveryEvent::Kind::kCut), 1) << "where it is cut is reported once";
  EXPECT_TRUE(d.table().valid);
  for (const Path& p : d.table().paths) {
    const int64_t age = now - p.verified_ns;
    if (f.SpineOf(p.port) == 1) {
      EXPECT_GT(age, 90 * kSecond) << "its age shows";
      ASSERT_NE(d.CutOf(p.port), nullptr);
      EXPECT_EQ(*d.CutOf(p.port), Hops(p.hops.begin(), p.hops.begin() + 1));
      EXPECT_EQ(*d.HopsOf(p.port), p.hops);
    } else {
      EXPECT_LT(age, 32 * kSecond);
      EXPECT_EQ(d.CutOf(p.port), nullptr);
    }
  }
  f.cut_spines.clear();
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Count(d.TakeEvents(), DiscoveryEvent::Kind::kCut), 1);
  for (const Path& p : d.table().paths) EXPECT_EQ(d.CutOf(p.port), nullptr);
}

TEST(Discovery, BuiltWhileASpineIsCutItTakesFewSlotsAndHealsLater) {
  TracedFabric f{.spines = 4};
  f.cut_spines = {1};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 40 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_LE(d.table().paths.size(), 5u) << "three paths, and at most two ports that end at the leaf";
  f.cut_spines.clear();
  SimulateDiscovery(d, f, now, 40 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size());
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
}

TEST(Discovery, NativePortsAreTracedOnDemandAndFold) {
  TracedFabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  d.TakeEvents();
  EXPECT_EQ(std::nullopt, d.Fold(0xd001));
  d.TracePort(0xd001);
  EXPECT_LE(d.NextDeadlineNs(), now);
  SimulateDiscovery(d, f, now, kSecond);
  const auto events = d.TakeEvents();
  ASSERT_EQ(1, Count(events, DiscoveryEvent::Kind::kTraced));
  ASSERT_TRUE(d.Fold(0xd001).has_value());
  EXPECT_EQ(f.SpineOf(0xd001), f.SpineOf(*d.Fold(0xd001)));
  EXPECT_EQ(4u, d.table().paths.size());
  d.Rebuild();
  EXPECT_FALSE(d.table().valid);
  SimulateDiscovery(d, f, now, 10 * kSecond);
  ASSERT_TRUE(d.Fold(0xd001).has_value()) << "and again in each build";
}

// An agent that starts while one of two uplinks is dead: traces that are cut at its leaf begin as those over the other.
TEST(Discovery, APathThatWasCutAtTheStartIsFoundWhenItIsMended) {
  for (const uint32_t salt : {1U, 2U, 3U, 4U}) {
    TracedFabric f{.spines = 2, .salt = salt, .cut_spines = {1}};
    Discovery d({}, {});
    int64_t now = 0;
    const int first = SimulateDiscovery(d, f, now, 60 * kSecond);
    ASSERT_TRUE(d.table().valid);
    EXPECT_EQ((std::set<int>{0}), SpinesOf(d.table(), f)) << "a port that is cut takes another path than this";
    EXPECT_LT(SimulateDiscovery(d, f, now, 60 * kSecond), first / 4) << "what stays cut is traced seldom";
    f.cut_spines.clear();
    SimulateDiscovery(d, f, now, 60 * kSecond);
    EXPECT_EQ((std::set<int>{0, 1}), SpinesOf(d.table(), f));
    for (const Path& p : d.table().paths) EXPECT_TRUE(p.known);
  }
}

// A queue pair that connects during an outage: its port's hops were cut for as long as the agent ran.
TEST(Discovery, ANativePortThatWasTracedWhileItsPathWasCutFoldsWhenThatLives) {
  TracedFabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  f.cut_spines = {f.SpineOf(0xd001)};
  d.TracePort(0xd001);
  SimulateDiscovery(d, f, now, 20 * kSecond);
  EXPECT_EQ(std::nullopt, d.Fold(0xd001));
  d.TakeEvents();
  f.cut_spines.clear();
  d.Doubt(now);  // a path came back
  SimulateDiscovery(d, f, now, 2 * kSecond);
  ASSERT_TRUE(d.Fold(0xd001).has_value());
  EXPECT_EQ(f.SpineOf(0xd001), f.SpineOf(*d.Fold(0xd001)));
  EXPECT_GE(Count(d.TakeEvents(), DiscoveryEvent::Kind::kTraced), 1) << "its slot is to be folded";
  EXPECT_EQ(4u, d.table().paths.size());
  SimulateDiscovery(d, f, now, 5 * kSecond);
  d.TakeEvents();
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Count(d.TakeEvents(), DiscoveryEvent::Kind::kTraced), 0) << "it is known";
}

TEST(Discovery, AdoptedPortsStayThePathsPorts) {
  TracedFabric f{.spines = 4};
  Discovery first({.seed = 1}, {});
  int64_t now = 0;
  SimulateDiscovery(first, f, now, 5 * kSecond);
  std::vector<uint16_t> ports;
  for (const Path& p : first.table().paths) ports.push_back(p.port);
  Discovery second({.seed = 2}, ports);
  SimulateDiscovery(second, f, now, 5 * kSecond);
  std::vector<uint16_t> again;
  for (const Path& p : second.table().paths) again.push_back(p.port);
  EXPECT_EQ(ports, again);
}

TEST(Discovery, MoreThanTwelvePathsAreTruncated) {
  TracedFabric f{.spines = 16};
  Discovery d({.max_candidates = 100}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  EXPECT_EQ(12u, d.table().paths.size());
  EXPECT_TRUE(d.table().truncated);
}

TEST(Discovery, AnswersThatNobodyAskedForChangeNothing) {
  TracedFabric f{.spines = 2};
  Discovery d({}, {});
  int64_t now = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    SimulateDiscovery(d, f, now, kMs);
    d.OnAnswer(static_cast<uint16_t>(random()), static_cast<uint16_t>(random()),
               Addr::FromV4(0x0b000000 + random() % 9), now);
  }
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(2u, d.table().paths.size());
}

TEST(Hops, CertainHopsCompletesOnlyWhatIsUnambiguous) {
  const Addr a = Addr::FromV4(1), b = Addr::FromV4(2), c = Addr::FromV4(3), d = Addr::FromV4(4), none;
  const auto certain = CertainHops({{1, {a, b, c}}, {2, {a, b}}, {3, {a, none, c}}, {4, {a}}, {5, {a, d, c}}, {6, {}}});
  EXPECT_EQ((std::map<uint16_t, Hops>{{1, {a, b, c}}, {2, {a, b, c}}, {5, {a, d, c}}}), certain);
  EXPECT_FALSE(Conflict({a, b, c}, {a, none, c}));
  EXPECT_FALSE(Conflict({a, b, c}, {}));
  EXPECT_FALSE(Conflict({a, none, c}, {a, b, c}));
  EXPECT_TRUE(Conflict({a, b, c}, {a, d}));
  EXPECT_TRUE(Conflict({a, b}, {a, b, c}));
  EXPECT_EQ("0.0.0.1 *", HopsToString({a, none}));
}

TEST(Discovery, HopsOfACutPathDoNotEndAtTheLastSwitch) {
  TracedFabric f;
  f.cut_spines = {2};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  ASSERT_TRUE(d.table().valid);
  for (const Path& p : d.table().paths) {
    EXPECT_EQ(d.EndsAtLastSwitch(p.port), f.SpineOf(p.port) != 2) << HopsToString(p.hops);
  }
  EXPECT_FALSE(d.EndsAtLastSwitch(1)) << "never traced";
}

TEST(Discovery, ThreeTiersAreSeenToTheirEnd) {
  TracedFabric f{.tiers = 3};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  ASSERT_EQ(d.table().paths.size(), 4u);
  for (const Path& p : d.table().paths) {
    EXPECT_EQ(p.hops.size(), 5u) << HopsToString(p.hops);
    EXPECT_TRUE(d.EndsAtLastSwitch(p.port));
  }
}

TEST(Discovery, WhatFillsMaxTtlHasNoEnd) {
  for (const int max_ttl : {2, 4, 5, 6}) {
    TracedFabric f{.tiers = 3};
    Discovery d({.max_ttl = max_ttl}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, 20 * kSecond);
    ASSERT_FALSE(d.table().paths.empty());
    for (const Path& p : d.table().paths) EXPECT_EQ(d.EndsAtLastSwitch(p.port), max_ttl > 5) << HopsToString(p.hops);
  }
}

// Most ways are cut behind the second switch, and so are the first traces: no reason to look no further.
TEST(Discovery, FirstTracesThatAreCutDoNotCutTheOthers) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    TracedFabric f{.tiers = 3, .salt = static_cast<uint32_t>(seed), .cut_spines = {0, 1, 2}, .cut_ttl = 3};
    Discovery d({.window = 3, .seed = seed}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, 20 * kSecond);
    for (const Path& p : d.table().paths) {
      const bool whole = f.SpineOf(p.port) == 3;
      EXPECT_EQ(p.hops.size(), whole ? 5u : 2u);
      EXPECT_EQ(d.EndsAtLastSwitch(p.port), whole) << HopsToString(p.hops);
      found += whole;
    }
  }
  EXPECT_GE(found, 19) << "one path of four may be missed now and then";
}

TEST(Discovery, ALeafOfBothCostsFewPackets) {
  TracedFabric f{.tiers = 1};
  Discovery d({}, {});
  int64_t now = 0;
  EXPECT_LE(SimulateDiscovery(d, f, now, 20 * kSecond), 8 * 7 * 3 + 20 * 2);
  ASSERT_EQ(d.table().paths.size(), 1u);
  EXPECT_TRUE(d.EndsAtLastSwitch(d.table().paths[0].port));
  EXPECT_LE(SimulateDiscovery(d, f, now, 30 * kSecond), 2) << "to keep it: the leaf, and the silence behind";
}

TEST(EndProof, WhatNeverAnsweredHasNoEndAndWhatDiesKeepsIt) {
  const Hops cut = {Addr::FromV4(1)}, whole = {Addr::FromV4(1), Addr::FromV4(2), Addr::FromV4(3)};
  EndProof proof;
  EXPECT_FALSE(proof.Look(cut, true, false)) << "traced while nothing got through";
  EXPECT_FALSE(proof.Look(whole, false, true)) << "longer than traces reach";
  EXPECT_TRUE(proof.Look(whole, true, true));
  EXPECT_TRUE(proof.Look(whole, true, false)) << "it died";
  EXPECT_FALSE(proof.Look(cut, true, false)) << "traced anew, up to the cut";
  EXPECT_FALSE(proof.Look({}, true, true));
}

// A transport that has a few ports only: candidates are those, whatever the range says, and all of them at most.
TEST(Discovery, DrawsFromThePortsThatThereAre) {
  DiscoveryOptions o;
  o.max_candidates = 64;
  for (uint16_t port = 50000; port < 50640; port += 20) o.ports.push_back(port);
  Discovery d(o, {});
  TracedFabric f;
  int64_t now = kSecond;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(d.table().paths.size(), 4u);
  for (const Path& p : d.table().paths) EXPECT_NE(std::find(o.ports.begin(), o.ports.end(), p.port), o.ports.end());
  EXPECT_LE(d.ports_traced(), 32);
}

TEST(Discovery, FewPortsAndNoAnswers) {
  DiscoveryOptions o;
  o.ports = {50000, 50001, 50002};
  Discovery d(o, {});
  TracedFabric f;
  f.leaves_silent = true;
  f.silent_spines = {0, 1, 2, 3};
  int64_t now = kSecond;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(d.table().paths.size(), 3u);
}

}  // namespace
}  // namespace cw::probe
