// SPDX-License-Identifier: Apache-2.0
// What is silent without a verdict: who is silent to whom tells hosts, NICs, leaves and rails apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/fleet_findings_fixture.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using State = PathEvidence::State;

class SilenceTest : public FindingsTest {
 protected:
  bool At(const PathEvidence& path, std::set<size_t> nics) const {
    for (const size_t n : nics) {
      if (path.source == fabric_.nic(n) || path.destination == fabric_.nic(n)) return true;
    }
    return false;
  }
  // h4's only NIC, as its agent reports, too.
  void LosesCarrier() {
    Silence({4});
    picture_.events.push_back({.host = "h4",
                               .type = "nic",
                               .run = 1,
                               .time_ns = picture_.now_ns,
                               .alert = true,
                               .evidence = {{"nic", "eth0"}, {"carrier", "down"}}});
  }
  // What goes on after so many seconds, as "cause: scope".
  std::vector<std::string> OpenAfter(int seconds) {
    Pass(seconds);
    std::vector<std::string> open;
    for (const Finding& f : findings_.Open()) open.push_back(absl::StrCat(CauseName(f.cause), ": ", f.scope));
    return open;
  }
  // As agents report it, second by second.
  void Silence(const std::set<size_t>& nics) {
    for (PathEvidence& path : picture_.paths) {
      if (!At(path, nics)) continue;
      path.state = State::kSilent;
      path.silent_ns = kSecondNs;
    }
  }
};

TEST_F(SilenceTest, AHostWithoutPowerIsDownAndNothingElse) {
  Silence({4});
  for (PathEvidence& path : picture_.paths) {
    if (path.source == fabric_.nic(4)) path.state = State::kAlive, path.silent_ns = 0;  // its last word
  }
  silent_ = {4};
  EXPECT_THAT(OpenAfter(4), ElementsAre("host down: host h4"));
  EXPECT_THAT(OpenAfter(60), ElementsAre("host down: host h4"));
  picture_.hosts[4].connected = false;
  EXPECT_THAT(OpenAfter(60), ElementsAre("host down: host h4")) << "that its agent is gone is no finding of its own";
}

// One path of it had died long before: that word is as old as the others.
TEST_F(SilenceTest, AHostThatHadADeadPathBeforeItDiedIsDownAllTheSame) {
  for (PathEvidence& path : picture_.paths) {
    if (path.source == fabric_.nic(4) && path.destination == fabric_.nic(0)) {
      path.state = State::kDead;
      break;
    }
  }
  Pass(20);
  for (PathEvidence& path : picture_.paths) {
    if (path.destination == fabric_.nic(4)) path.state = State::kSilent, path.silent_ns = kSecondNs;
  }
  silent_ = {4};
  EXPECT_THAT(OpenAfter(5), ElementsAre("host down: host h4"));
}

TEST_F(SilenceTest, ASilentNicWhoseAgentReportsIsDown) {
  Silence({4});
  EXPECT_THAT(OpenAfter(4), ElementsAre("NIC down: NIC " + fabric_.nic(4).ToString()));
  const Finding f = findings_.Open()[0];
  EXPECT_EQ(f.place, "NIC eth0 of h4 (" + fabric_.nic(4).ToString() + ")");
}

// In the lab it was "switch dead" of a leaf that is well.
TEST_F(SilenceTest, ANicOfARackWhoseOtherHostsAreDownIsNoDeadLeaf) {
  Silence({3, 4, 5});
  for (PathEvidence& path : picture_.paths) {
    if (path.host == 4 || path.host == 5) path.state = State::kAlive, path.silent_ns = 0;  // their last word
  }
  silent_ = {4, 5};
  EXPECT_THAT(OpenAfter(1), IsEmpty());
  EXPECT_THAT(OpenAfter(5), UnorderedElementsAre("NIC down: NIC " + fabric_.nic(3).ToString(), "host down: host h4",
                                                 "host down: host h5"));
  EXPECT_THAT(OpenAfter(60), SizeIs(3));
}

// Of two hosts that still report and a third that does not, it is the leaf.
TEST_F(SilenceTest, ADeadLeafOneOfWhoseHostsIsDownTooIsTheLeaf) {
  Silence({3, 4, 5});
  for (PathEvidence& path : picture_.paths) {
    if (path.host == 5) path.state = State::kAlive, path.silent_ns = 0;
  }
  silent_ = {5};
  EXPECT_THAT(OpenAfter(6), ElementsAre("switch dead: switch " + fabric_.name(fabric_.leaf(0, 1))));
}

// The word of its hosts comes one after the other.
TEST_F(SilenceTest, ADeadLeafWhoseHostsReportLateIsTheLeafAlone) {
  Silence({3, 4, 5});
  for (PathEvidence& path : picture_.paths) {
    if (path.host == 4 || path.host == 5) path.state = State::kAlive, path.silent_ns = 0;
  }
  silent_ = {4, 5};
  EXPECT_THAT(OpenAfter(2), IsEmpty());
  silent_.clear();
  Silence({3, 4, 5});
  EXPECT_THAT(OpenAfter(4), ElementsAre("switch dead: switch " + fabric_.name(fabric_.leaf(0, 1))));
  EXPECT_THAT(OpenAfter(20), SizeIs(1));
}

TEST_F(SilenceTest, ADeadLeafIsOneFindingAndItsHostsNone) {
  Silence({3, 4, 5});
  EXPECT_THAT(OpenAfter(4), ElementsAre("switch dead: switch " + fabric_.name(fabric_.leaf(0, 1))));
  for (size_t h = 3; h < 6; ++h) picture_.hosts[h].connected = false;
  EXPECT_THAT(OpenAfter(60), ElementsAre("switch dead: switch " + fabric_.name(fabric_.leaf(0, 1))));
}

TEST_F(SilenceTest, ALeafThatTookItsHostsAlongSaysSo) {
  Silence({3, 4, 5});
  for (PathEvidence& path : picture_.paths) {
    if (path.host >= 3 && path.host < 6) path.state = State::kAlive, path.silent_ns = 0;
  }
  for (size_t h = 3; h < 6; ++h) picture_.hosts[h].connected = false;
  EXPECT_THAT(OpenAfter(5), ElementsAre("switch dead: switch " + fabric_.name(fabric_.leaf(0, 1))));
  EXPECT_THAT(findings_.Open()[0].evidence, testing::Contains(HasSubstr("see the rack's power")));
}

TEST_F(SilenceTest, ARailThatIsSilentAsAWholeIsOneFinding) {
  for (HostEvidence& host : picture_.hosts) host.nics[0].rail = "rail3";
  Silence({0, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(OpenAfter(5), ElementsAre("rail down: rail rail3"));
}

// Its probes arrive, the answers do not come back: what it crosses on the way there is well.
TEST_F(SilenceTest, SilenceThatTheOtherEndHearsAccusesNothingOnTheWayThere) {
  const Addr a = fabric_.nic(0), b = fabric_.nic(4);
  for (PathEvidence& path : picture_.paths) {
    if ((path.source == a && path.destination == b) || (path.source == b && path.destination == a)) {
      path.state = State::kSilent;
      path.silent_ns = kSecondNs;
    }
  }
  picture_.arrivals = {{.from = a, .to = b}, {.from = b, .to = a}};
  EXPECT_THAT(OpenAfter(20), IsEmpty());
}

// In one direction alone: the other end hears it, or is heard.
TEST_F(SilenceTest, ANicThatCannotSendIsDown) {
  const Addr nic = fabric_.nic(4);
  Silence({4});
  for (size_t n = 0; n < fabric_.nics(); ++n) {
    if (n != 4) picture_.arrivals.push_back({.from = fabric_.nic(n), .to = nic});
  }
  EXPECT_THAT(OpenAfter(5), ElementsAre("NIC down: NIC " + nic.ToString()));
  EXPECT_THAT(findings_.Open()[0].evidence, testing::Contains(HasSubstr("what it sends does not arrive")));
}

TEST_F(SilenceTest, ANicThatCannotReceiveIsDown) {
  const Addr nic = fabric_.nic(4);
  Silence({4});
  for (size_t n = 0; n < fabric_.nics(); ++n) {
    if (n != 4) picture_.arrivals.push_back({.from = nic, .to = fabric_.nic(n)});
  }
  EXPECT_THAT(OpenAfter(5), ElementsAre("NIC down: NIC " + nic.ToString()));
}

TEST_F(SilenceTest, SilenceIsNoGreyLoss) {
  for (PathEvidence& path : picture_.paths) {
    if (!At(path, {4})) continue;
    path.state = State::kSilent;
    path.silent_ns = 30 * kSecondNs;
    path.lost = 80;
  }
  for (const std::string& open : OpenAfter(60)) EXPECT_THAT(open, HasSubstr("NIC down"));
}

// Never whole, since the link was dead before agents began: its paths end at the spine.
TEST_F(SilenceTest, ALinkThatWasDeadBeforeAgentsBeganIsFound) {
  const int spine = fabric_.spine(0, 1);
  std::vector<std::vector<Addr>> cut;
  cut.reserve(picture_.paths.size());
  std::vector<Trace> traces;
  for (PathEvidence& path : picture_.paths) {
    size_t to = 0;
    while (fabric_.nic(to) != path.destination) ++to;
    if (Crosses(path, spine) && to >= 3 && to < 6 && path.hops->size() == 3) {
      cut.push_back({(*path.hops)[0], (*path.hops)[1], Addr{}});
      path.hops = &cut.back();
      path.hops_id = HopsId(cut.back());
      path.state = State::kNew;
      path.silent_ns = 20 * kSecondNs;
    }
    traces.push_back({path.source, path.destination, *path.hops});
  }
  topology_ = BuildTopology(traces, fabric_.Plan());
  ++picture_.fabric;
  Pass(5);
  const std::vector<Finding> open = findings_.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(open[0].cause, Cause::kLinkDead);
  EXPECT_THAT(open[0].scope, HasSubstr(fabric_.name(spine) + ">" + fabric_.name(fabric_.leaf(0, 1))));
}

// Cut where nobody tells the cable from the spine, but for where the traces end.
TEST_F(SilenceTest, WhereTracesEndTellsACableFromItsSwitch) {
  const int spine = fabric_.spine(0, 1);
  const auto rack = [&](const Addr& nic) {
    size_t n = 0;
    while (fabric_.nic(n) != nic) ++n;
    return n / 3;
  };
  // Only two racks are left, so that all paths over the spine cross both cables.
  std::erase_if(picture_.paths, [&](const PathEvidence& p) { return rack(p.source) == 2 || rack(p.destination) == 2; });
  for (PathEvidence& path : picture_.paths) {
    if (!Crosses(path, spine)) continue;
    path.state = State::kDead;
    path.reached = rack(path.source) == 0 ? 1 : 2;  // from leaf 1 the spine still answers
  }
  Pass(5);
  const std::vector<Finding> open = findings_.Open();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_THAT(open[0].scope, HasSubstr("cable")) << open[0].scope;
  EXPECT_THAT(open[0].scope, HasSubstr(fabric_.name(fabric_.leaf(0, 0))));
}

TEST_F(SilenceTest, DeadPathsThatNothingExplainsAreOneFindingThatNamesWhatTheyShare) {
  int n = 0;
  for (PathEvidence& path : picture_.paths) {
    path.hops = nullptr;
    path.hops_id = 0;
    if (++n % 4 == 0) path.state = State::kDead;
  }
  EXPECT_THAT(OpenAfter(15), ElementsAre("paths dead: paths of the fabric"));
}

TEST_F(SilenceTest, AHostThatCannotMeasureAndOneWhoseReportsDoNotCountAreFindings) {
  picture_.hosts[2].late_share = 0.4;
  picture_.hosts[5].refusal = "batch 7: from the future: see to the host's clock";
  EXPECT_THAT(OpenAfter(40), testing::UnorderedElementsAre("host too busy: host h2", "reports refused: host h5"));
}

// Without its XDP program it answers nobody, and its own agent says why.
TEST_F(SilenceTest, ANicThatItsOwnAgentDoesNotMeasureIsNoNicThatIsDown) {
  Silence({4});
  picture_.hosts[4].nics[0].trouble = "NIC eth0: another XDP program (id 7) is in the place of the agent's";
  EXPECT_THAT(OpenAfter(15), ElementsAre("NIC not measured: NIC " + fabric_.nic(4).ToString()));
  picture_.hosts[4].nics[0].trouble.clear();
  EXPECT_THAT(OpenAfter(15), ElementsAre("NIC down: NIC " + fabric_.nic(4).ToString()));
}

// Its own word explains all of its paths, as others see them, too.
TEST_F(SilenceTest, ANicThatIsDownByItsHostsWordIsOneFinding) {
  LosesCarrier();
  EXPECT_THAT(OpenAfter(20), ElementsAre("NIC down: NIC " + fabric_.nic(4).ToString()));
}

// Its agent ended while it was down, and the next one says nothing of it.
TEST_F(SilenceTest, WhatAnAgentSaidBeforeItEndedHoldsNoMore) {
  picture_.hosts[4].run = 1;
  LosesCarrier();
  ASSERT_THAT(OpenAfter(20), ElementsAre("NIC down: NIC " + fabric_.nic(4).ToString()));
  Set(PathEvidence::State::kAlive, All);
  picture_.hosts[4].run = 2;
  EXPECT_THAT(OpenAfter(15), IsEmpty());
}

// Racks of two hosts, both of which fail at once: what still passes says that it is not their leaf.
class SmallRacks : public FindingsTest {
 protected:
  SmallRacks() : FindingsTest({.leaves = 4, .spines = 2, .nics = 2}) {}

  // Nothing that is sent to `deaf` arrives, nothing that `mute` sends; the words of `off` are those of before.
  void Fail(const std::set<size_t>& deaf, const std::set<size_t>& mute, const std::set<size_t>& off, int seconds) {
    picture_.arrivals.clear();
    const auto fails = [&](const Addr& from, const Addr& to) {
      for (size_t n = 0; n < fabric_.nics(); ++n) {
        if (off.contains(n) && (from == fabric_.nic(n) || to == fabric_.nic(n))) return true;
        if ((deaf.contains(n) && to == fabric_.nic(n)) || (mute.contains(n) && from == fabric_.nic(n))) return true;
      }
      return false;
    };
    for (size_t from = 0; from < fabric_.nics(); ++from) {
      for (size_t to = 0; to < fabric_.nics(); ++to) {
        if (from != to && !off.contains(to) && !fails(fabric_.nic(from), fabric_.nic(to)))
          picture_.arrivals.push_back({.from = fabric_.nic(from), .to = fabric_.nic(to)});
      }
    }
    for (const size_t host : off) silent_.insert(static_cast<ptrdiff_t>(host));
    for (int second = 1; second <= seconds; ++second) {
      for (PathEvidence& path : picture_.paths) {
        if (off.contains(path.host)) continue;
        if (!fails(path.source, path.destination) && !fails(path.destination, path.source)) continue;
        path.state = PathEvidence::State::kSilent;
        path.silent_ns = second * kSecondNs;
      }
      Pass(1);
      for (const Finding& f : findings_.Open()) {
        EXPECT_NE(f.cause, Cause::kSwitchDead) << "second " << second << ": " << f.scope;
        EXPECT_NE(f.cause, Cause::kLinkDead) << "second " << second << ": " << f.scope;
        seen_.insert(absl::StrCat(CauseName(f.cause), ": ", f.scope));
      }
    }
  }
  std::string Nic(size_t n) const { return "NIC down: NIC " + fabric_.nic(n).ToString(); }

  std::set<std::string> seen_;
};

TEST_F(SmallRacks, AHostIsOffAndTheOtherHearsNothing) {
  Fail({1}, {}, {0}, 15);
  EXPECT_THAT(seen_, testing::UnorderedElementsAre("host down: host h0", Nic(1)));
}

TEST_F(SmallRacks, AHostIsOffAndTheOtherIsNotHeard) {
  Fail({}, {1}, {0}, 15);
  EXPECT_THAT(seen_, testing::UnorderedElementsAre("host down: host h0", Nic(1)));
}

TEST_F(SmallRacks, OneHearsNothingAndTheOtherIsNotHeard) {
  Fail({0}, {1}, {}, 15);
  EXPECT_THAT(seen_, testing::UnorderedElementsAre(Nic(0), Nic(1)));
}

// A host that comes back is heard before it hears.
TEST_F(SmallRacks, AHostThatHasJustStartedIsNotDeaf) {
  picture_.hosts[1].began_ns = picture_.now_ns;
  Fail({1}, {}, {}, 9);
  EXPECT_THAT(seen_, IsEmpty());
  Fail({1}, {}, {}, 9);
  EXPECT_THAT(seen_, ElementsAre(Nic(1)));
}

// A rack that is cut off: its hosts reach each other, so its switch lives.
TEST_F(SmallRacks, ALeafWhoseCablesDieOneByOneLives) {
  const int leaf = fabric_.leaf(0, 0);
  std::set<std::string> cables;
  for (int spine = 0; spine < 2; ++spine) {
    const Addr down = fabric_.PortTo(leaf, fabric_.spine(0, spine)), up = fabric_.PortTo(fabric_.spine(0, spine), leaf);
    for (int second = 1; second <= 20; ++second) {
      for (PathEvidence& path : picture_.paths) {
        const bool over = std::count(path.hops->begin(), path.hops->end(), down) > 0 ||
                          std::count(path.hops->begin(), path.hops->end(), up) > 0;
        if (!over) continue;
        path.state = PathEvidence::State::kDead;
        path.silent_ns = second * kSecondNs;
      }
      Pass(1);
      for (const Finding& f : findings_.Open()) {
        EXPECT_NE(f.cause, Cause::kSwitchDead) << spine << ", second " << second << ": " << f.scope;
        cables.insert(f.scope);
      }
    }
  }
  EXPECT_EQ(cables.size(), 2u) << *cables.begin();
}

}  // namespace
}  // namespace cw::fleet
