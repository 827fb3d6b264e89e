// SPDX-License-Identifier: Apache-2.0
// What an independent trial found misreported: a second fault beside an open one, what died before, restarts of agents,
// loss in both directions and of whole switches, and queues of a host that is late itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/fleet_findings_fixture.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TwoFaults : public FindingsTest {
 protected:
  static bool Over(const PathEvidence& path, const Addr& port) {
    return std::count(path.hops->begin(), path.hops->end(), port) > 0;
  }
  auto OverCable(int leaf, int spine) const {
    const Addr down = fabric_.PortTo(leaf, spine), up = fabric_.PortTo(spine, leaf);
    return [=](const PathEvidence& path) { return Over(path, down) || Over(path, up); };
  }
  std::string Cable(int leaf, int spine) const {
    const auto [a, b] = std::minmax(fabric_.name(leaf), fabric_.name(spine));
    return absl::StrCat("cable ", a, " = ", b);
  }
  std::vector<std::string> Open() const {
    std::vector<std::string> open;
    for (const Finding& f : findings_.Open()) open.push_back(absl::StrCat(CauseName(f.cause), ": ", f.scope));
    return open;
  }
  std::vector<std::string> OpenAfter(int seconds) {
    Pass(seconds);
    return Open();
  }
  template <typename Which>
  void Lose(uint32_t lost, const Which& which) {
    for (PathEvidence& path : picture_.paths) path.lost = which(path) ? lost : 0;
  }
  const int leaf_ = fabric_.leaf(0, 1), spine_ = fabric_.spine(0, 0);
};

// Within the hour a whole leaf was dead twice; then a cable far from it flaps, and paths to the leaf cross that, too.
TEST_F(TwoFaults, ALeafThatWasDeadDoesNotFlapWithACable) {
  for (int i = 0; i < 2; ++i) {
    Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, leaf_); });
    EXPECT_THAT(OpenAfter(5), ElementsAre("switch dead: switch " + fabric_.name(leaf_)));
    Set(PathEvidence::State::kAlive, All);
    Pass(60);
  }
  const int other = fabric_.leaf(0, 0);
  for (int flap = 1; flap <= 11; ++flap) {
    Set(PathEvidence::State::kDead, OverCable(other, spine_));
    Pass(3);
    Set(PathEvidence::State::kAlive, All);
    Pass(20);
  }
  EXPECT_THAT(Open(), ElementsAre("link flapping: " + Cable(other, spine_)));
}

TEST_F(TwoFaults, TheTimeOfADeathIsNotThatOfPathsThatWereDeadBefore) {
  const Addr nic = fabric_.nic(0);  // what it sends does not arrive, and so no answer of it does
  for (size_t n = 1; n < fabric_.nics(); ++n) picture_.arrivals.push_back({.from = fabric_.nic(n), .to = nic});
  const auto over = OverCable(leaf_, spine_);
  const auto set = [&](int seconds, int cut_seconds) {
    for (PathEvidence& path : picture_.paths) {
      path.silent_ns = 0;
      if (path.source == nic || path.destination == nic) {
        path.state = PathEvidence::State::kSilent;
        path.silent_ns = seconds * kSecondNs;
      } else if (cut_seconds > 0 && over(path)) {
        path.state = PathEvidence::State::kDead;
        path.silent_ns = cut_seconds * kSecondNs;
      }
    }
    Pass(1);
  };
  for (int s = 1; s <= 30; ++s) set(s, 0);
  ASSERT_THAT(Open(), ElementsAre("NIC down: NIC " + nic.ToString()));
  const int64_t cut_ns = picture_.now_ns;
  for (int s = 1; s <= 5; ++s) set(30 + s, s);
  ASSERT_THAT(Open(), ElementsAre("NIC down: NIC " + nic.ToString(), "link dead: " + Cable(leaf_, spine_)));
  EXPECT_NEAR(static_cast<double>(findings_.Open()[1].start_ns - cut_ns), 0, 2e9);
}

// Agents that start anew have not traced their paths yet, and say nothing of the dead ones.
TEST_F(TwoFaults, ADeadCableStaysOneWhileAgentsRestart) {
  const auto over = OverCable(leaf_, spine_);
  Set(PathEvidence::State::kDead, over);
  EXPECT_THAT(OpenAfter(5), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  const auto restarts = [](const PathEvidence& p) { return p.host < 4; };
  Set(PathEvidence::State::kNoWord, restarts);
  EXPECT_THAT(OpenAfter(3), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  Set(PathEvidence::State::kNew, [&](const PathEvidence& p) { return restarts(p) && over(p); });
  EXPECT_THAT(OpenAfter(15), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  // One direction alone is known.
  Set(PathEvidence::State::kNoWord, [&](const PathEvidence& p) { return Crosses(p, leaf_) && p.host / 3 != 1; });
  EXPECT_THAT(OpenAfter(15), ElementsAre("link dead: " + Cable(leaf_, spine_)));
}

// Of hosts that restart little is known: all of that may be dead, and most of it cross a leaf that was dead twice
// within the hour, a moment ago for the last time, and lives.
TEST_F(TwoFaults, ALeafThatWasDeadBeforeIsNotDeadForWhatElseCrossesIt) {
  for (int i = 0; i < 2; ++i) {
    Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, leaf_); });
    EXPECT_THAT(OpenAfter(5), ElementsAre("switch dead: switch " + fabric_.name(leaf_)));
    Set(PathEvidence::State::kAlive, All);
    EXPECT_THAT(OpenAfter(20), IsEmpty());
  }
  const auto ends_at_one = [&](const PathEvidence& p) {
    const std::set<Addr> few = {fabric_.nic(0), fabric_.nic(1), fabric_.nic(6)};
    return few.contains(p.source) || few.contains(p.destination);
  };
  Set(PathEvidence::State::kNoWord, ends_at_one);
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return ends_at_one(p) && Crosses(p, leaf_); });
  for (int second = 0; second < 10; ++second) {
    for (const std::string& open : OpenAfter(1)) EXPECT_EQ(open.find("switch dead"), std::string::npos) << open;
  }
}

// A restart is no life between two deaths, and what its agent counts anew is no new silence.
TEST_F(TwoFaults, RestartsOfAgentsMakeNoFlaps) {
  const auto over = OverCable(leaf_, spine_);
  for (int restart = 0; restart < 12; ++restart) {
    for (HostEvidence& host : picture_.hosts) host.began_ns = picture_.now_ns;
    for (PathEvidence& path : picture_.paths) path.silent_ns = 0;
    Set(PathEvidence::State::kNoWord, over);
    Pass(2);
    for (int s = 1; s <= 6; ++s) {
      for (PathEvidence& path : picture_.paths) {
        if (over(path)) path.state = PathEvidence::State::kNew, path.silent_ns = s * kSecondNs;
      }
      Pass(1);
    }
  }
  EXPECT_THAT(Open(), ElementsAre("link dead: " + Cable(leaf_, spine_)));
}

TEST_F(TwoFaults, ACableThatDiesAgainIsNamedOnceThoughOneDirectionIsKnown) {
  const auto over = OverCable(leaf_, spine_);
  Set(PathEvidence::State::kDead, over);
  ASSERT_THAT(OpenAfter(5), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  Set(PathEvidence::State::kAlive, All);
  ASSERT_THAT(OpenAfter(15), IsEmpty());
  const Addr down = fabric_.PortTo(leaf_, spine_);
  Set(PathEvidence::State::kNoWord, over);
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Over(p, down); });
  EXPECT_THAT(OpenAfter(5), ElementsAre("link dead: " + Cable(leaf_, spine_)));
}

// Two paths of one host were dead long before, of something that nobody else sees.
TEST_F(TwoFaults, ADeathBeganWhenMostPathsDied) {
  const auto over = OverCable(leaf_, spine_);
  std::vector<PathEvidence*> early;
  for (PathEvidence& path : picture_.paths) {
    if (over(path) && path.host == 0 && early.size() < 2) early.push_back(&path);
  }
  const auto age = [&](int64_t ns) {
    for (PathEvidence* path : early) path->state = PathEvidence::State::kDead, path->silent_ns = ns;
    Pass(1);
  };
  for (int s = 1; s <= 30; ++s) age(s * kSecondNs);
  const int64_t cut_ns = picture_.now_ns;
  for (int s = 1; s <= 5; ++s) {
    for (PathEvidence& path : picture_.paths) {
      if (over(path)) path.state = PathEvidence::State::kDead, path.silent_ns = s * kSecondNs;
    }
    age((30 + s) * kSecondNs);
  }
  ASSERT_THAT(Open(), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  EXPECT_NEAR(static_cast<double>(findings_.Open()[0].start_ns - cut_ns), 0, 2e9);
}

// Kept, and not for ever: more dies, and less is dead.
TEST_F(TwoFaults, ACableThatIsKeptGivesWayToItsSwitchAndEnds) {
  Set(PathEvidence::State::kDead, OverCable(leaf_, spine_));
  EXPECT_THAT(OpenAfter(5), ElementsAre("link dead: " + Cable(leaf_, spine_)));
  Set(PathEvidence::State::kDead, [&](const PathEvidence& p) { return Crosses(p, spine_); });
  EXPECT_THAT(OpenAfter(15), ElementsAre("switch dead: switch " + fabric_.name(spine_)));
  Set(PathEvidence::State::kAlive, All);
  EXPECT_THAT(OpenAfter(15), IsEmpty());
}

// The port of a queue pair that connects as its path dies is reported as new, once: a moment later another path's slot
// stands for it.
TEST_F(TwoFaults, APortThatWasReportedAsNewOnceIsNoDeadPath) {
  told_ = picture_.paths.size();
  for (size_t i = 0; i < told_; ++i) {
    PathEvidence path = picture_.paths[i];
    if (path.host < 3 || path.destination != fabric_.nic(0)) continue;
    path.state = PathEvidence::State::kNew;
    path.hops = nullptr;
    path.hops_id = path.sent = 0;
    path.udp_port = static_cast<uint16_t>(1000 + i);
    path.time_ns = picture_.now_ns + kSecondNs;
    picture_.paths.push_back(path);
  }
  Set(PathEvidence::State::kDead,
      [&](const PathEvidence& p) { return p.hops != nullptr && OverCable(fabric_.leaf(0, 0), spine_)(p); });
  EXPECT_THAT(OpenAfter(20), ElementsAre("link dead: " + Cable(fabric_.leaf(0, 0), spine_)));
  // What is new for longer, and is said so, counts.
  told_ = SIZE_MAX;
  EXPECT_THAT(OpenAfter(10), SizeIs(2));
}

// Traced while the cable was dead, such a port's path ends at the leaf.
TEST_F(TwoFaults, APathThatIsCutWhereACableFlapsDoesNotFlapBesideIt) {
  const int leaf = fabric_.leaf(0, 0);
  const std::vector<PathEvidence> all = picture_.paths;
  std::map<Addr, std::vector<Addr>> cut;  // by NIC
  for (PathEvidence path : all) {
    if (path.host >= 3 || !OverCable(leaf, spine_)(path)) continue;
    const std::vector<Addr>& hops = cut.try_emplace(path.source, std::vector{path.hops->front(), Addr{}}).first->second;
    path.hops = &hops;
    path.hops_id = HopsId(hops);
    for (const uint16_t port : {1001, 1002}) {
      path.udp_port = port;
      picture_.paths.push_back(path);
    }
  }
  ASSERT_THAT(cut, SizeIs(3));
  const auto flaps = [&](const PathEvidence& p) { return p.udp_port > 1000 || OverCable(leaf, spine_)(p); };
  for (int flap = 1; flap <= 11; ++flap) {
    Set(PathEvidence::State::kDead, flaps);
    Pass(6);
    Set(PathEvidence::State::kAlive, All);
    Pass(6);
  }
  EXPECT_THAT(Open(), ElementsAre("link flapping: " + Cable(leaf, spine_)));
}

TEST_F(TwoFaults, BothDirectionsOfACableThatLoseAreTheCable) {
  const Addr down = fabric_.PortTo(leaf_, spine_);
  Lose(4, [&](const PathEvidence& p) { return Over(p, down); });
  const std::vector<std::string> open = OpenAfter(25);
  ASSERT_THAT(open, ElementsAre(HasSubstr("link grey: link ")));
  const uint64_t id = findings_.Open()[0].id;
  Lose(4, OverCable(leaf_, spine_));
  EXPECT_THAT(OpenAfter(25), ElementsAre("link grey: " + Cable(leaf_, spine_)));
  EXPECT_EQ(findings_.Open()[0].id, id) << "it goes on";
  Lose(0, All);
  EXPECT_THAT(OpenAfter(60), IsEmpty());
}

TEST_F(TwoFaults, ASwitchAllOfWhoseLinksLoseIsTheSwitch) {
  Lose(4, [&](const PathEvidence& p) { return Crosses(p, spine_); });
  EXPECT_THAT(OpenAfter(30), ElementsAre("link grey: switch " + fabric_.name(spine_)));
}

// Three probes that a busy machine lost are no news of a link that lost many before: what that lost is over.
TEST_F(TwoFaults, GreyLossThatIsOverComesBackByNewLossesAlone) {
  const Addr down = fabric_.PortTo(leaf_, spine_);
  const auto over = [&](const PathEvidence& p) { return Over(p, down); };
  for (PathEvidence& path : picture_.paths) path.sent = 20;
  Lose(1, over);
  ASSERT_THAT(OpenAfter(60), SizeIs(1));
  Lose(0, All);
  for (int second = 0; second < 60 && !Open().empty(); ++second) Pass(1);
  ASSERT_THAT(Open(), IsEmpty());
  int left = 3;
  Lose(1, [&](const PathEvidence& p) { return over(p) && left-- > 0; });
  EXPECT_THAT(OpenAfter(1), IsEmpty());
  Lose(0, All);
  EXPECT_THAT(OpenAfter(30), IsEmpty());
}

TEST_F(TwoFaults, AnMtuThatIsMendedPathByPathOpensNothing) {
  const auto small = [&](const auto& which) {
    for (PathEvidence& path : picture_.paths) {
      path.largest_bytes = which(path) ? 1484 : 0;
      path.full_size = path.largest_bytes == 0;
    }
  };
  small(OverCable(leaf_, spine_));
  ASSERT_THAT(OpenAfter(25), ElementsAre("packet size: " + Cable(leaf_, spine_)));
  const Addr down = fabric_.PortTo(leaf_, spine_);
  small([&](const PathEvidence& p) { return Over(p, down); });
  EXPECT_THAT(OpenAfter(8), ElementsAre("packet size: " + Cable(leaf_, spine_)));
  small([](const PathEvidence&) { return false; });
  EXPECT_THAT(OpenAfter(15), IsEmpty());
}

TEST_F(TwoFaults, ANicThatWasDownBeforeDoesNotComeBackWithItsLeaf) {
  const auto carrier = [&](const char* host, const char* word) {
    picture_.events.push_back({.host = host,
                               .type = "nic",
                               .run = 1,
                               .time_ns = picture_.now_ns,
                               .alert = true,
                               .evidence = {{"nic", "eth0"}, {"carrier", word}}});
  };
  const Addr nic = fabric_.nic(3);
  Set(PathEvidence::State::kSilent, [&](const PathEvidence& p) { return p.source == nic || p.destination == nic; });
  carrier("h3", "down");
  ASSERT_THAT(OpenAfter(6), ElementsAre("NIC down: NIC " + nic.ToString()));
  Set(PathEvidence::State::kAlive, All);
  carrier("h3", "up");
  ASSERT_THAT(OpenAfter(20), IsEmpty());
  Set(PathEvidence::State::kSilent, [&](const PathEvidence& p) { return Crosses(p, leaf_); });
  for (const char* host : {"h3", "h4", "h5"}) carrier(host, "down");
  ASSERT_THAT(OpenAfter(10), ElementsAre("switch dead: switch " + fabric_.name(leaf_)));
  Set(PathEvidence::State::kAlive, All);
  for (const char* host : {"h4", "h5"}) carrier(host, "up");
  EXPECT_THAT(OpenAfter(3), ElementsAre("switch dead: switch " + fabric_.name(leaf_)));
  carrier("h3", "up");
  EXPECT_THAT(OpenAfter(20), IsEmpty());
}

TEST_F(TwoFaults, AHostThatIsLateItselfIsNoCongestion) {
  const Addr nic = fabric_.nic(0);
  const auto queue = [&](const auto& which) {
    for (PathEvidence& path : picture_.paths) path.queue_ns = which(path) ? 60'000 : 0;
  };
  queue([&](const PathEvidence& p) { return p.source == nic; });
  EXPECT_THAT(OpenAfter(30), IsEmpty()) << "what it sends waits in itself";
  queue([&](const PathEvidence& p) { return p.source == nic || p.destination == nic; });
  EXPECT_THAT(OpenAfter(30), IsEmpty());
  picture_.hosts[0].late_share = 0.1;
  queue([&](const PathEvidence& p) { return p.destination == nic; });
  EXPECT_THAT(OpenAfter(30), IsEmpty());
  picture_.hosts[0].late_share = 0;
  EXPECT_THAT(OpenAfter(30), ElementsAre(HasSubstr("incast: ")));
}

// In the lab the word of the senders came 9 s before that of the paths.
TEST_F(TwoFaults, AReceiverBeforeWhoseNicPathsQueueIsNotSlowItself) {
  const Addr nic = fabric_.nic(0);
  const std::string host = picture_.hosts[0].name;
  for (const char* sender : {"h2", "h3"})
    picture_.events.push_back({sender, "cause", host, "f", 1, picture_.now_ns, false, {{"cause", "slow receiver"}}});
  EXPECT_THAT(OpenAfter(10), IsEmpty());
  for (PathEvidence& path : picture_.paths) path.queue_ns = path.destination == nic ? 60'000 : 0;
  EXPECT_THAT(OpenAfter(60), ElementsAre(HasSubstr("incast: ")));
  for (PathEvidence& path : picture_.paths) path.queue_ns = 0;
  EXPECT_THAT(OpenAfter(90), ElementsAre("slow receiver: host " + host)) << "it is slow without a crowd, too";
}

}  // namespace
}  // namespace cw::fleet
