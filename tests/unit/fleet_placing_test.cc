// SPDX-License-Identifier: Apache-2.0
// Where findings place what comes and goes: a cable that flaps is one finding, though hosts report at different times
// and each sees one direction first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_join.h"
#include "tests/unit/fleet_findings_fixture.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kSeeds = 40, kFlaps = 12;
constexpr int64_t kStepNs = kSecondNs / 10;

// Agents find a death within half a second and a return within one. They report each ten seconds, and news of paths at
// most once a second.
class FlapsTest : public FindingsTest {
 protected:
  struct Agent {
    int64_t news_ns = 0, next_ns = 0, reported_ns = 0, lag_ns = 0;
  };
  struct Seen {
    bool over = false;                   // it crosses what flaps
    bool dead = false;                   // as its agent knows
    int64_t turns_ns = 0, alive_ns = 0;  // when the agent finds the change; its last sign of life
  };

  double Draw(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  int64_t DrawNs(double from_s, double to_s) { return static_cast<int64_t>(Draw(from_s, to_s) * 1e9); }

  template <typename Over>
  void Begin(uint64_t seed, PathEvidence::State dead, const Over& over) {
    random_.seed(seed);
    dead_ = dead;
    agents_.resize(picture_.hosts.size());
    for (Agent& agent : agents_) agent.next_ns = picture_.now_ns + DrawNs(0, 10);
    seen_.clear();
    for (const PathEvidence& path : picture_.paths) seen_.push_back({.over = over(path)});
  }

  void SetCable(bool up) {
    up_ = up;
    for (Seen& s : seen_) {
      if (!s.over) continue;
      if (!up) s.alive_ns = picture_.now_ns;
      s.turns_ns = picture_.now_ns + (up ? DrawNs(0.6, 1) : DrawNs(0.3, 0.5));
    }
  }

  void Report(uint32_t h) {
    HostEvidence& host = picture_.hosts[h];
    host.last_seen_ns = host.newest_ns = picture_.now_ns;
    for (size_t i = 0; i < seen_.size(); ++i) {
      PathEvidence& path = picture_.paths[i];
      if (path.host != h) continue;
      path.time_ns = picture_.now_ns;
      path.state = seen_[i].dead ? dead_ : PathEvidence::State::kAlive;
      const int64_t silent_ns = picture_.now_ns - seen_[i].alive_ns;
      path.silent_ns = seen_[i].dead && silent_ns > kSecondNs ? silent_ns : 0;
    }
    agents_[h].reported_ns = picture_.now_ns;
    agents_[h].next_ns = picture_.now_ns + 10 * kSecondNs;
    agents_[h].news_ns = 0;
  }

  bool StepAgents() {
    for (size_t i = 0; i < seen_.size(); ++i) {
      Seen& s = seen_[i];
      if (s.turns_ns == 0 || picture_.now_ns < s.turns_ns) continue;
      s.turns_ns = 0;
      Agent& agent = agents_[picture_.paths[i].host];
      if (s.dead != up_) continue;
      s.dead = !up_;
      if (agent.news_ns == 0) agent.news_ns = picture_.now_ns, agent.lag_ns = DrawNs(0.1, 0.5);
    }
    bool any = false;
    for (uint32_t h = 0; h < agents_.size(); ++h) {
      const Agent& a = agents_[h];
      const bool soon = a.news_ns != 0 && picture_.now_ns >= std::max(a.news_ns + a.lag_ns, a.reported_ns + kSecondNs);
      if (!soon && picture_.now_ns < a.next_ns) continue;
      Report(h);
      any = true;
    }
    return any;
  }

  void Go(int64_t ns) {
    for (const int64_t end_ns = picture_.now_ns + ns; picture_.now_ns < end_ns;) {
      picture_.now_ns += kStepNs;
      news_ |= StepAgents();
      const bool due = picture_.now_ns - looked_ns_ >= kSecondNs || picture_.now_ns >= findings_.NextNs();
      if (!due && !(news_ && picture_.now_ns - looked_ns_ >= 2 * kStepNs)) continue;
      news_ = false;
      looked_ns_ = picture_.now_ns;
      for (const Finding& f : findings_.Evaluate(picture_)) {
        if (f.end_ns == 0) ids_.insert(f.id);
        story_.push_back(absl::StrCat((picture_.now_ns - begun_ns_) / 1'000'000, " ms: ", IdText(f.id), " ",
                                      CauseName(f.cause), " at ", f.scope, f.end_ns == 0 ? "" : ", over"));
      }
    }
  }

  void Flap() {
    begun_ns_ = picture_.now_ns;
    for (int i = 0; i < kFlaps; ++i) {
      const int64_t period_ns = DrawNs(2, 30);
      const auto down_ns = static_cast<int64_t>(Draw(0.3, 0.7) * static_cast<double>(period_ns));
      SetCable(false);
      Go(down_ns);
      SetCable(true);
      Go(period_ns - down_ns);
    }
    Go(20 * kSecondNs);
  }

  void ExpectOneFinding(const std::string& scope, uint64_t seed) {
    const std::string story = absl::StrCat("seed ", seed, "\n", absl::StrJoin(story_, "\n"));
    const std::vector<Finding> open = findings_.Open();
    ASSERT_THAT(open, SizeIs(1)) << story;
    EXPECT_EQ(open[0].cause, Cause::kFlapping) << story;
    EXPECT_EQ(open[0].scope, scope) << story;
    EXPECT_THAT(ids_, SizeIs(1)) << story;
  }

  // Hours later, when everything is forgotten.
  void Anew() {
    picture_.now_ns += 7200 * kSecondNs;
    Set(PathEvidence::State::kAlive, All);
    for (PathEvidence& path : picture_.paths) path.silent_ns = 0;
    ids_.clear();
    story_.clear();
    Pass(15);
  }

  std::mt19937_64 random_;
  PathEvidence::State dead_ = PathEvidence::State::kDead;
  std::vector<Agent> agents_;
  std::vector<Seen> seen_;
  bool up_ = true, news_ = false;
  int64_t looked_ns_ = 0, begun_ns_ = 0;
  std::set<uint64_t> ids_;
  std::vector<std::string> story_;
};

TEST_F(FlapsTest, ACableBetweenSwitchesIsOneFinding) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Anew();
    const int leaf = fabric_.leaf(0, static_cast<int>(seed % 3)), spine = fabric_.spine(0, static_cast<int>(seed % 2));
    const Addr up = fabric_.PortTo(spine, leaf), down = fabric_.PortTo(leaf, spine);
    Begin(seed, PathEvidence::State::kDead, [&](const PathEvidence& p) {
      return std::count(p.hops->begin(), p.hops->end(), up) + std::count(p.hops->begin(), p.hops->end(), down) > 0;
    });
    Flap();
    const auto [a, b] = std::minmax({fabric_.name(leaf), fabric_.name(spine)});
    ExpectOneFinding(absl::StrCat("cable ", a, " = ", b), seed);
  }
}

TEST_F(FlapsTest, ANicsCableIsOneFinding) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Anew();
    const Addr nic = fabric_.nic(seed % fabric_.nics());
    Begin(seed, PathEvidence::State::kSilent,
          [&](const PathEvidence& p) { return p.source == nic || p.destination == nic; });
    Flap();
    ExpectOneFinding("NIC " + nic.ToString(), seed);
  }
}

// What of a cable is found dead one direction after the other is the cable, with the id of the first.
TEST_F(FlapsTest, ADirectionThatIsSeenFirstBecomesItsCable) {
  const Addr up = fabric_.PortTo(fabric_.spine(0, 0), fabric_.leaf(0, 0)),
             down = fabric_.PortTo(fabric_.leaf(0, 0), fabric_.spine(0, 0));
  const auto over = [&](const Addr& port) {
    return [&](const PathEvidence& p) { return std::count(p.hops->begin(), p.hops->end(), port) > 0; };
  };
  Set(PathEvidence::State::kDead, over(up));
  const std::vector<Finding> first = Pass(3);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_THAT(first[0].links, SizeIs(1));
  Set(PathEvidence::State::kDead, over(down));
  const std::vector<Finding> then = Pass(3);
  ASSERT_THAT(then, SizeIs(1));
  EXPECT_EQ(then[0].id, first[0].id);
  EXPECT_THAT(then[0].scope, HasSubstr("cable "));
  EXPECT_THAT(then[0].links, SizeIs(2));
  EXPECT_THAT(findings_.Open(), SizeIs(1));
}

// Two agents report one direction each, as they see it: it is the cable of both.
TEST_F(FlapsTest, WhatAgentsReportOfEachDirectionIsTheCable) {
  const int leaf = fabric_.leaf(0, 1), spine = fabric_.spine(0, 0);
  const auto say = [&](const std::string& host, const Addr& port) {
    picture_.events.push_back({.host = host,
                               .type = "link",
                               .run = 1,
                               .time_ns = picture_.now_ns,
                               .alert = true,
                               .evidence = {{"link", port.ToString()}, {"flaps", "9"}}});
  };
  say("h3", fabric_.PortTo(spine, leaf));
  EXPECT_THAT(Pass(2), IsEmpty()) << "one host alone";
  say("h0", fabric_.PortTo(leaf, spine));
  const std::vector<Finding> found = Pass(2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].cause, Cause::kFlapping);
  EXPECT_THAT(found[0].scope, HasSubstr("cable "));
  EXPECT_THAT(found[0].hosts, ElementsAre("h0", "h3"));
}

TEST_F(FlapsTest, ANicThatItsHostReportsIsTheNicThatPathsShow) {
  picture_.events.push_back({.host = "h4",
                             .type = "link",
                             .run = 1,
                             .time_ns = picture_.now_ns,
                             .alert = true,
                             .evidence = {{"link", "eth0"}, {"flaps", "9"}}});
  const std::vector<Finding> found = Pass(2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].scope, "NIC " + fabric_.nic(4).ToString());
}

}  // namespace
}  // namespace cw::fleet
