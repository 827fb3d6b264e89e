// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_findings_fixture.h"
#include "userspace/fleet/findings/settings.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(FindingsTest, ADeadSpineIsOneFindingWithItsHostsThatEndsAndKeepsItsId) {
  const int spine = fabric_.spine(0, 1);
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, spine); });
  const std::vector<Finding> opened = Pass(5);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].cause, Cause::kSwitchDead);
  EXPECT_EQ(opened[0].scope, "switch " + fabric_.name(spine));
  EXPECT_THAT(opened[0].hosts, SizeIs(9));
  EXPECT_EQ(opened[0].id, FindingId(opened[0].cause, opened[0].scope, opened[0].start_ns));
  EXPECT_THAT(Pass(30), IsEmpty()) << "it goes on";
  Set(PathEvidence::State::kAlive, All);
  std::vector<Finding> ended = Pass(20);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].id, opened[0].id);
  EXPECT_GT(ended[0].end_ns, ended[0].start_ns);
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, spine); });
  const std::vector<Finding> back = Pass(2);
  ASSERT_THAT(back, SizeIs(1));
  EXPECT_EQ(back[0].id, opened[0].id) << "the same one came back";
}

TEST_F(FindingsTest, WhatIsSureOpensAtOnceAndWhatCouldBeMoreWaitsForAllToSpeak) {
  const int spine = fabric_.spine(0, 1);
  const Addr down = fabric_.PortTo(fabric_.leaf(0, 1), spine), up = fabric_.PortTo(spine, fabric_.leaf(0, 1));
  // All hosts say that the cable is dead, and in the same breath that the switches at its ends live.
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) {
    return std::count(p.hops->begin(), p.hops->end(), down) + std::count(p.hops->begin(), p.hops->end(), up) > 0;
  });
  std::vector<Finding> found = Pass(1);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kLinkDead);
  EXPECT_THAT(found[0].links, SizeIs(2));
  Set(PathEvidence::State::kAlive, All);
  Pass(150);
  // Of the spine only hosts of one leaf have spoken yet: it may be all of it.
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return p.host < 3 && Crosses(p, spine); });
  EXPECT_THAT(Pass(1), IsEmpty());
  EXPECT_LT(findings_.NextNs(), picture_.now_ns + 2 * kSecondNs) << "looked at again soon";
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, spine); });
  found = Pass(1);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kSwitchDead);
}

TEST_F(FindingsTest, PathsThatComeBackOneByOneAreNoNewFindings) {
  const int spine = fabric_.spine(0, 0);
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, spine); });
  ASSERT_THAT(Pass(5), SizeIs(1));
  int n = 0;
  Set(PathEvidence::State::kAlive, [&](const PathEvidence&) { return ++n % 5 != 0; });
  for (const Finding& f : Pass(20)) EXPECT_EQ(f.cause, Cause::kSwitchDead) << f.scope;
}

TEST_F(FindingsTest, OneHostThatLiesAccusesNothingThatOthersFindWell) {
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return p.host == 0; });
  EXPECT_THAT(Pass(40), IsEmpty());
  EXPECT_THAT(findings_.distrusted(), ElementsAre("h0"));
  Set(PathEvidence::State::kAlive, All);
  for (PathEvidence& p : picture_.paths) {
    if (p.host == 0 && Crosses(p, fabric_.spine(0, 0))) p.lost = 40;
  }
  EXPECT_THAT(Pass(40), IsEmpty());
}

TEST_F(FindingsTest, AHostThatIsMissingIsNoLinkAndOneThatIsDeadIsToldFromItsAgent) {
  picture_.hosts[4].connected = false;
  std::vector<Finding> found = Pass(40);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kAgentGone);
  EXPECT_EQ(found[0].scope, "host h4");
  Set(PathEvidence::State::kDead,
      [&](const PathEvidence& p) { return p.destination == fabric_.nic(4) || p.source == fabric_.nic(4); });
  found = Pass(15);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].cause, Cause::kHostDown);
  EXPECT_EQ(found[1].cause, Cause::kAgentGone);
  EXPECT_NE(found[1].end_ns, 0) << "the host's death explains it";
}

// Its management switch died: the paths of these hosts live.
TEST_F(FindingsTest, AgentsOfARackThatGoTogetherAreOneFinding) {
  for (size_t h = 0; h < 9; ++h) picture_.hosts[h].rack = absl::StrCat("r", h / 3);
  picture_.hosts[0].connected = picture_.hosts[3].connected = picture_.hosts[4].connected = false;
  const std::vector<Finding> together = Pass(40);
  ASSERT_THAT(together, SizeIs(1));
  EXPECT_EQ(together[0].scope, "several hosts");
  EXPECT_THAT(together[0].hosts, ElementsAre("h0", "h3", "h4"));
  picture_.hosts[0].connected = true;
  Pass(20);
  picture_.hosts[5].connected = false;
  const std::vector<Finding> changed = Pass(60);
  ASSERT_FALSE(changed.empty());
  const std::vector<Finding> open = findings_.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].scope, "rack r1");
  EXPECT_THAT(open[0].hosts, ElementsAre("h3", "h4", "h5"));
}

TEST_F(FindingsTest, AHostThatSaysNothingSinceItDiedIsDownSoon) {
  const auto at_host = [&](const PathEvidence& p) {
    return p.destination == fabric_.nic(4) || p.source == fabric_.nic(4);
  };
  // Connected still, as far as the service's kernel knows, and its own last word was that all is well.
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return p.destination == fabric_.nic(4); });
  silent_ = {4};
  EXPECT_THAT(Pass(2), IsEmpty());
  const std::vector<Finding> found = Pass(3);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kHostDown);
  EXPECT_EQ(found[0].scope, "host h4");
  // It was only its NIC: its agent speaks.
  silent_.clear();
  Set(PathEvidence::State::kDead, at_host);
  const std::vector<Finding> then = Pass(15);
  ASSERT_THAT(then, SizeIs(2));
  EXPECT_EQ(then[0].cause, Cause::kNicDown);
  EXPECT_EQ(then[1].cause, Cause::kHostDown);
  EXPECT_NE(then[1].end_ns, 0);
}

TEST_F(FindingsTest, AHostThatSaysThatItsPathsArePausedIsNotDown) {
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return p.destination == fabric_.nic(4); });
  Set(PathEvidence::State::kPaused, [&](const PathEvidence& p) { return p.source == fabric_.nic(4); });
  silent_ = {4};  // after that word
  for (const Finding& f : Pass(10)) EXPECT_NE(f.cause, Cause::kHostDown) << f.scope;
}

TEST_F(FindingsTest, GreyLossNeedsTwoIntervalsAndIsOneDirection) {
  const Addr port = fabric_.PortTo(fabric_.leaf(0, 2), fabric_.spine(0, 1));
  for (PathEvidence& p : picture_.paths) {
    if (std::count(p.hops->begin(), p.hops->end(), port) > 0) p.lost = 4;
  }
  EXPECT_THAT(Pass(10), IsEmpty());
  const std::vector<Finding> found = Pass(15);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kLinkGrey);
  ASSERT_THAT(found[0].links, SizeIs(1));
  EXPECT_EQ(found[0].links[0].second, port);
}

TEST_F(FindingsTest, OneHostsWordOfItsOwnLinkIsBelievedIfAllItsPathsLoseAlike) {
  std::vector<PathEvidence*> own;
  for (PathEvidence& path : picture_.paths) {
    path.sent = 20;
    if (path.host == 0) own.push_back(&path);
  }
  // One probe of every third second is lost, on one of so many of its paths: too few for one path to show it.
  const auto loses = [&](size_t paths) {
    std::vector<Finding> changed;
    for (size_t interval = 0; interval < 25; ++interval) {
      for (PathEvidence* path : own) path->lost = 0;
      own[interval % paths]->lost = 1;
      picture_.now_ns += 3 * kSecondNs;
      for (HostEvidence& host : picture_.hosts) host.last_seen_ns = host.newest_ns = picture_.now_ns;
      for (PathEvidence& path : picture_.paths) path.time_ns = picture_.now_ns;
      for (Finding& f : findings_.Evaluate(picture_)) changed.push_back(std::move(f));
    }
    return changed;
  };
  ASSERT_GE(own.size(), 12u);
  EXPECT_THAT(loses(own.size() / 3), IsEmpty()) << "its other paths cross the same link and lose nothing";
  picture_.now_ns += 300 * kSecondNs;  // forgotten
  const std::vector<Finding> found = loses(own.size());
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kLinkGrey);
}

TEST_F(FindingsTest, NineFlapsWithinAnHourAreFlapping) {
  const Addr port = fabric_.PortTo(fabric_.spine(0, 1), fabric_.leaf(0, 1));
  const auto over = [&](const PathEvidence& p) { return std::count(p.hops->begin(), p.hops->end(), port) > 0; };
  std::set<uint64_t> ids;
  for (int flap = 1; flap <= 9; ++flap) {
    Set(PathEvidence::State::kDead, over);
    std::vector<Finding> found = Pass(3);
    const bool flaps = std::any_of(found.begin(), found.end(), [](auto& f) { return f.cause == Cause::kFlapping; });
    EXPECT_EQ(flaps, flap == 9) << flap;
    for (const Finding& f : found) ids.insert(f.id);
    Set(PathEvidence::State::kAlive, All);
    Pass(20);
  }
  EXPECT_THAT(ids, SizeIs(1)) << "dead first, flapping then: one finding";
  const std::vector<Finding> open = findings_.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].cause, Cause::kFlapping);
  EXPECT_THAT(open[0].evidence[0], ::testing::HasSubstr("9 times"));
}

TEST_F(FindingsTest, WhatAgentsSayOfThemselves) {
  const auto say = [&](const std::string& host, const std::string& type, const std::string& peer, bool alert,
                       std::vector<std::pair<std::string, std::string>> evidence) {
    picture_.events.push_back({host, type, peer, type == "cause" ? "f" : "", 1, picture_.now_ns, alert, evidence});
  };
  say("h1", "nic", "", true, {{"nic", "eth0"}, {"carrier", "down"}});
  say("h2", "cause", "h3", false, {{"cause", "slow receiver"}});
  say("h5", "clock", "h6", true, {{"disagreement_ns", "5000"}});
  std::vector<Finding> found = Pass(8);
  ASSERT_THAT(found, SizeIs(1)) << "one host alone calls no clock false";
  EXPECT_EQ(found[0].scope, "NIC " + fabric_.nic(1).ToString());
  found = Pass(20);
  ASSERT_THAT(found, SizeIs(1)) << "an incast would have shown by now";
  EXPECT_EQ(found[0].scope, "host h3");
  say("h7", "clock", "h6", true, {{"disagreement_ns", "5000"}});
  found = Pass(8);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kClock);
}

TEST_F(FindingsTest, AClassThatIsHeldUpAtAReceiverIsOneFindingAndNobodysDeath) {
  const Addr nic = fabric_.nic(4);
  Set(PathEvidence::State::kPaused, [&](const PathEvidence& p) { return p.source == nic || p.destination == nic; });
  const std::vector<Finding> opened = Pass(10);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].cause, Cause::kClassPaused);
  EXPECT_EQ(opened[0].scope, "NIC " + nic.ToString());
  Set(PathEvidence::State::kAlive, All);
  const std::vector<Finding> ended = Pass(15);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_NE(ended[0].end_ns, 0);
}

TEST_F(FindingsTest, WhatIsLostWhileAClassIsHeldUpIsNoGreyLoss) {
  Set(PathEvidence::State::kPaused, All);
  for (PathEvidence& path : picture_.paths) path.lost = 100;
  Pass(10);
  Set(PathEvidence::State::kAlive, All);
  // Some probes of before are counted as lost only now.
  for (PathEvidence& path : picture_.paths) path.lost = 4;
  for (const Finding& finding : Pass(2)) EXPECT_NE(finding.cause, Cause::kLinkGrey);
  for (PathEvidence& path : picture_.paths) path.lost = 0;
  for (const Finding& finding : Pass(40)) EXPECT_NE(finding.cause, Cause::kLinkGrey);
}

TEST_F(FindingsTest, OneNicThatIsSetUnlikeItsLikeIsTold) {
  for (HostEvidence& host : picture_.hosts) host.nics[0].mtu = 9000, host.nics[0].rate_bps = 4e11;
  EXPECT_THAT(Pass(60), IsEmpty());
  picture_.hosts[3].nics[0].mtu = 1500;
  picture_.hosts[3].nics[0].rate_bps = 8e11;  // more harms nobody
  const std::vector<Finding> opened = Pass(60);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].cause, Cause::kConfiguration);
  EXPECT_EQ(opened[0].scope, "NIC eth0 of h3");
  EXPECT_THAT(opened[0].evidence, ElementsAre("its MTU is 1500 bytes; nearly all NICs eth0 have 9000 bytes"));
  picture_.hosts[5].nics[0].mtu = 1500;  // now they are mixed
  const std::vector<Finding> ended = Pass(60);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_NE(ended[0].end_ns, 0);
}

TEST(OddSettings, ManyAreOneSuspicionOfTheirKindAndNoHostDecidesAlone) {
  Picture picture;
  for (int h = 0; h < 2000; ++h) {
    picture.hosts.push_back({.name = absl::StrCat("h", h)});
    picture.hosts.back().nics = {{.name = "eth0", .rail = "r", .mtu = h % 10 == 0 ? 1500u : 9000u}};
  }
  const std::vector<bool> fresh(picture.hosts.size(), true);
  std::vector<Suspicion> odd = OddSettings(picture, fresh);
  ASSERT_THAT(odd, SizeIs(1));
  EXPECT_EQ(odd[0].what.scope, "NICs of rail r with another MTU");
  picture.hosts.resize(20);
  EXPECT_THAT(OddSettings(picture, fresh), SizeIs(2));
  // One with 64 NICs of as many MTUs, before all others.
  for (uint32_t i = 0; i < 64; ++i)
    picture.hosts[0].nics.push_back({.name = absl::StrCat("x", i), .rail = "r", .mtu = 2000 + i});
  EXPECT_GE(OddSettings(picture, fresh).size(), 1u);
}

TEST_F(FindingsTest, AClockThatMayBeFarOffIsToldWhereMostAreNot) {
  for (HostEvidence& host : picture_.hosts) host.clock_known = host.clock_synced = true, host.clock_bound_ns = 50e3;
  EXPECT_THAT(Pass(70), IsEmpty());
  picture_.hosts[2].clock_bound_ns = 134e6;
  const std::vector<Finding> opened = Pass(70);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].cause, Cause::kClock);
  EXPECT_EQ(opened[0].scope, "host h2");
  EXPECT_THAT(opened[0].evidence, ElementsAre("its fleet time may be wrong by 100ms; 8 of 9 hosts know theirs within "
                                              "10ms"));
}

TEST_F(FindingsTest, AJobThatStandsForAProcessIsToldWithIt) {
  picture_.standing = {{.job = "train", .host = "h1", .text = "AllReduce stands"}};
  const std::vector<Finding> opened = Pass(10);
  ASSERT_THAT(opened, SizeIs(1));
  EXPECT_EQ(opened[0].cause, Cause::kNotNetwork);
  EXPECT_EQ(opened[0].scope, "job train");
  EXPECT_THAT(opened[0].jobs, ElementsAre("train"));
}

TEST(EventBook, AHostFillsNothing) {
  EventBook book;
  for (int i = 0; i < 5000; ++i) {
    book.Take({.host = "h", .type = "nic", .run = 1, .evidence = {{"nic", absl::StrCat(i)}, {"carrier", "down"}}});
    book.Take(
        {.host = "h", .type = "cause", .flow = absl::StrCat(i), .run = 1, .evidence = {{"cause", "slow sender"}}});
  }
  EXPECT_THAT(book.hosts().at("h").nics_down, SizeIs(EventBook::kMostOfHost));
  EXPECT_THAT(book.hosts().at("h").slow, SizeIs(EventBook::kMostOfHost));
  book.Forget("h");
  EXPECT_TRUE(book.hosts().empty());
}

TEST(FindingId, IsTheSameEverywhere) {
  EXPECT_EQ(IdText(FindingId(Cause::kSwitchDead, "switch s", 5)), IdText(FindingId(Cause::kSwitchDead, "switch s", 5)));
  EXPECT_NE(FindingId(Cause::kSwitchDead, "switch s", 5), FindingId(Cause::kLinkDead, "switch s", 5));
  EXPECT_EQ(ParseId(IdText(77)), 77u);
  EXPECT_EQ(ParseId("xyz"), std::nullopt);
}

}  // namespace
}  // namespace cw::fleet
