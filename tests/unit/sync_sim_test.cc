// SPDX-License-Identifier: Apache-2.0
//
// Every scenario of tests/clock/ under several seeds, and the simulator's own promises: the same seed gives the same
// result, bad files are refused with their place, and the judge can fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "sync/sim/judge.h"
#include "sync/sim/scenario.h"

namespace cw::sync::sim {
namespace {

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CW_SOURCE_DIR "/tests/clock")) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Sanitizers look for faults of the code, which one seed shows as well as three, at ten times the cost.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class ClockScenario : public testing::TestWithParam<std::string> {};

TEST_P(ClockScenario, KeepsItsBands) {
  const auto scenario = ReadScenario(GetParam());
  ASSERT_TRUE(scenario.ok()) << scenario.status().message();
  const Verdict v = RunScenario(*scenario, kSanitized ? 1 : scenario->seeds);
  std::printf("%s: %s\n", scenario->name.c_str(), v.summary.c_str());
  for (const SeedResult& r : v.seeds) {
    for (const Miss& m : r.misses) {
      if (scenario->known_miss.empty()) {
        ADD_FAILURE() << Describe(m) << "\nagain: cw_clock_sim " << GetParam() << " --first-seed " << m.seed
                      << " --seeds 1";
      } else {
        std::printf("known miss: %s\n", Describe(m).c_str());
      }
    }
  }
  if (kSanitized && !scenario->known_miss.empty()) return;  // perhaps another seed is the one that misses
  EXPECT_TRUE(v.expected) << "the scenario is marked known_miss = \"" << scenario->known_miss
                          << "\", but keeps its bands now: remove the mark";
}

std::string NameOf(const testing::TestParamInfo<std::string>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Files, ClockScenario, testing::ValuesIn(Files()), NameOf);

constexpr char kSmall[] = R"(
name = "small"
about = "two kinds of links, some of everything"
hosts = 10
seconds = 4
settle_s = 2
[link]
loss = 0.05
[[event]]
kind = "lie"
at_s = 1
share = 0.1
ns = 10_000
[[event]]
kind = "restart"
at_s = 2
hosts = [3]
seconds = 0.5
)";

TEST(ClockSim, TheSameSeedGivesTheSameResultAndAnotherOneDoesNot) {
  for (const char* level : {"level = \"packet\"\n", "level = \"link\"\n"}) {
    const auto s = ParseScenario(std::string(level) + kSmall, "small.toml");
    ASSERT_TRUE(s.ok()) << s.status().message();
    const Metrics a = RunSeed(*s, 7).metrics, b = RunSeed(*s, 7).metrics, c = RunSeed(*s, 8).metrics;
    EXPECT_EQ(a, b) << level;
    EXPECT_NE(a, c) << level;
  }
}

TEST(ClockSim, JudgeFindsEachKindOfMiss) {
  Scenario s;
  s.expect.p99_ns = 60;
  s.expect.synchronised = 1;
  s.expect.tai_p99_ns = 100;
  const Metrics m = {{"p99_ns", 61},  {"synchronised", 0.5}, {"bound_coverage", 1},
                     {"disjoint", 0}, {"est_coverage", 1},   {"accused", 0}};
  const auto misses = Judge(s, m, 3);
  ASSERT_EQ(misses.size(), 3u);
  EXPECT_EQ(Describe(misses[0]), "seed 3: p99_ns is 61, has to be at most 60");
  EXPECT_EQ(Describe(misses[1]), "seed 3: synchronised is 0.5, has to be at least 1");
  EXPECT_EQ(Describe(misses[2]), "seed 3: nothing to judge tai_p99_ns by (band 100)");
}

// Where no packet arrives nobody says that it knows the time: the truth does not leak into the result.
TEST(ClockSim, AloneNobodyKnowsTheTime) {
  auto s = ParseScenario(kSmall, "small.toml");
  ASSERT_TRUE(s.ok()) << s.status().message();
  s->link.loss = 1;
  const Metrics m = RunSeed(*s, 1).metrics;
  const auto synchronised = m.find("synchronised");
  ASSERT_NE(synchronised, m.end());
  EXPECT_EQ(synchronised->second, 0);
}

// Under this seed small parts and the liars hold each other in balance: no part is large enough to go over to.
TEST(ClockSim, PartsInBalanceComeTogether) {
  auto s = ReadScenario(CW_SOURCE_DIR "/tests/clock/liars_constant.toml");
  ASSERT_TRUE(s.ok()) << s.status().message();
  const Metrics m = RunSeed(*s, 5098).metrics;
  EXPECT_GT(m.at("converge_s"), 8) << "another seed is needed: this one does not show the balance any more";
  EXPECT_LT(m.at("converge_s"), 14);
}

TEST(ClockSim, ARateJumpsAtOnce) {
  SimClock clock(ClockSpec{.wander_ppb = 0}, Random(1));
  clock.Jump(kSecond + kSecond / 2, 1000);
  EXPECT_EQ(clock.RatePpb(kSecond), 0);
  EXPECT_EQ(clock.RatePpb(2 * kSecond), 1000);
  EXPECT_NEAR(clock.ErrorNs(2 * kSecond), 500, 1e-6);
}

TEST(ClockSim, ClockIsTheSameHoweverOftenItIsAsked) {
  ClockSpec spec;
  spec.offset_ns = 1e6;
  spec.drift_ppb = 20'000;
  spec.wander_ppb = 5;
  SimClock once(spec, Random(1)), often(spec, Random(1));
  for (SimClock* c : {&once, &often}) {
    c->Step(3 * kSecond, 1000);
    c->Ramp(kSecond, 500, 2);
  }
  for (TrueNs t = 0; t < 5 * kSecond; t += kSecond / 100) often.ErrorNs(t);
  EXPECT_EQ(once.ErrorNs(5 * kSecond), often.ErrorNs(5 * kSecond));
  EXPECT_NEAR(often.ErrorNs(3 * kSecond) - often.ErrorNs(3 * kSecond - 1), 1000, 1e-3);
  EXPECT_NEAR(often.RatePpb(4 * kSecond), 20'500, 60);
}

struct BadFile {
  const char* text;
  const char* message;
};

TEST(ClockSim, BadFilesAreRefusedWithTheirPlace) {
  const BadFile bad[] = {
      {"name = \"x\"\nabout = \"y\"\nhosts = \"many\"\n", "f.toml:3: hosts has to be a whole number from 2 to 1000000"},
      {"name = \"x\"\nabout = \"y\"\n[link]\nlaod = 0.4\n", "f.toml:4: [link] knows no key \"laod\""},
      {"name = \"x\"\nabout = \"y\"\n[link]\nload = 1.4\n", "f.toml:4: load has to be a number from 0 to 0.99"},
      {"name = \"x\"\nabout = \"y\"\n[[event]]\nkind = \"stop\"\n", "f.toml:3: [[event]] kind has to be one of step"},
      {"name = \"x\"\nabout = \"y\"\n[[event]]\nkind = \"lie\"\nhosts = [1]\nforge = \"gold\"\n",
       "f.toml:3: [[event]] forge has to be one of identity, zero_bound, vast_bound, ahead, invented, mirror, not "
       "\"gold\""},
      {"name = \"x\"\nabout = \"y\"\n[[event]]\nkind = \"step\"\nns = 3\n", "f.toml:3: this [[event]] is about nobody"},
      {"name = \"x\"\nabout = \"y\"\n[[event]]\nkind = \"step\"\nhosts = [12]\n",
       "f.toml:5: hosts has to be a list of host numbers from 0 to 11"},
      {"name = \"x\"\nabout = \"y\"\n[expect\n", "f.toml:3: "},
      {"about = \"y\"\n", "f.toml:1: a scenario needs a name"},
  };
  for (const BadFile& b : bad) {
    const auto s = ParseScenario(b.text, "f.toml");
    ASSERT_FALSE(s.ok()) << b.text;
    EXPECT_NE(std::string(s.status().message()).find(b.message), std::string::npos) << s.status().message();
  }
  EXPECT_FALSE(ReadScenario("/nowhere/x.toml").ok());
}

// Three hosts of one timeline that are said to be synchronised, 10 µs apart from each other.
class ClockSimMeasure : public testing::Test {
 protected:
  ClockSimMeasure() {
    scenario_ = *ParseScenario("name = \"x\"\nabout = \"y\"\nhosts = 3\nseconds = 4\nsettle_s = 2\n", "small.toml");
    for (size_t i = 0; i < samples_.size(); ++i) {
      samples_[i] = {.up = true, .synchronised = true, .judged = true, .timeline = 5};
      samples_[i].fleet_ns = 10'000 * static_cast<double>(i);
      samples_[i].bound_ns = 20'000;
    }
  }
  Metrics Judged() {
    Fleet fleet(scenario_, 1);
    Measure measure(fleet);
    measure.Add(3 * kSecond, samples_);
    return measure.Result();
  }
  Scenario scenario_;
  std::vector<HostSample> samples_{3};
};

TEST_F(ClockSimMeasure, IntervalsThatMeetAndHoldTheMiddleAreNoMiss) {
  const Metrics m = Judged();
  EXPECT_EQ(m.at("disjoint"), 0);
  EXPECT_EQ(m.at("bound_coverage"), 1);
  EXPECT_EQ(m.at("bound_judged_hosts"), 3);
}

TEST_F(ClockSimMeasure, DisjointIntervalsOfOneTimelineAreCounted) {
  samples_[0].bound_ns = samples_[2].bound_ns = 9'000;
  EXPECT_EQ(Judged().at("disjoint"), 2) << "the first and the last";
  samples_[0].timeline = 6;
  EXPECT_EQ(Judged().at("disjoint"), 0) << "of two timelines";
  samples_[0].timeline = 5;
  samples_[0].synchronised = false;
  EXPECT_EQ(Judged().at("disjoint"), 0) << "who says that it knows nothing";
}

TEST_F(ClockSimMeasure, AnIntervalWithoutTheMiddleIsAMiss) {
  samples_[2].bound_ns = 9'000;
  EXPECT_NEAR(Judged().at("bound_coverage"), 2.0 / 3, 1e-9);
  EXPECT_EQ(Judged().at("disjoint"), 0);
}

// Each host is judged, whoever its neighbours are.
TEST(ClockSim, BoundsAreJudgedAtAllHosts) {
  auto s = ParseScenario(std::string("level = \"link\"\n") + kSmall, "small.toml");
  ASSERT_TRUE(s.ok()) << s.status().message();
  s->hosts = 200;
  s->events.clear();
  EXPECT_EQ(RunSeed(*s, 1).metrics.at("bound_judged_hosts"), 200);
}

TEST(ClockSim, ForgeriesHaveWords) {
  for (const char* word : {"identity", "zero_bound", "vast_bound", "ahead", "invented", "mirror"}) {
    const auto s = ParseScenario(
        absl::StrFormat("name = \"x\"\nabout = \"y\"\n[[event]]\nkind = \"lie\"\nhosts = [1]\nforge = \"%s\"\n", word),
        "f.toml");
    ASSERT_TRUE(s.ok()) << s.status().message();
    EXPECT_NE(s->events[0].forge, Forgery::kNone) << word;
  }
}

TEST(ClockSim, ThereAreDozensOfScenarios) { EXPECT_GE(Files().size(), 30u); }

}  // namespace
}  // namespace cw::sync::sim
