// SPDX-License-Identifier: Apache-2.0
// The judge of fleet_truth_lab_test: does a wrong answer fail?
#include <gtest/gtest.h>

#include "tests/lab/fleet_truth_case.h"
#include "tests/lab/fleet_truth_places.h"

namespace cw::lab {
namespace {

const absl::Time kBegan = absl::UnixEpoch();

absl::Time At(int seconds) { return kBegan + absl::Seconds(seconds); }

Said Open(const std::string& id, const std::string& cause, const std::string& scope) {
  return {.id = id, .cause = cause, .scope = scope, .open = true, .seen = {}};
}
Said Over(Said said) {
  said.open = false;
  said.end_ns = 7;
  return said;
}

TruthCase PowerOfH3() {
  TruthCase c{.name = "host_without_power", .begin = nullptr, .end = nullptr, .right = {}, .while_open = nullptr};
  c.right = {{"host down", OfHost(3)}};
  return c;
}

// Says this at 3 s, mends at 20 s, and says the other at 30 s.
std::string WrongWith(const std::vector<Said>& during, const std::vector<Said>& afterwards,
                      const std::vector<Said>& before = {}) {
  const TruthCase c = PowerOfH3();
  Judge judge({&c}, before, kBegan);
  judge.Look(during, At(3));
  judge.Mended(At(20));
  judge.Look(afterwards, At(30));
  return judge.Rows("test")[0].wrong;
}

const Said kRight = Open("1", "host down", "host h3");

TEST(FleetTruthJudge, TheRightFindingThatEndsIsTheTruth) {
  EXPECT_EQ(WrongWith({kRight}, {Over(kRight)}), "");
  const TruthCase c = PowerOfH3();
  Judge judge({&c}, {}, kBegan);
  EXPECT_FALSE(judge.AllFound());
  judge.Look({kRight}, At(3));
  EXPECT_TRUE(judge.AllFound());
  EXPECT_FALSE(judge.AllOver());
  judge.Mended(At(20));
  judge.Look({Over(kRight)}, At(30));
  EXPECT_TRUE(judge.AllOver());
  const TruthRow row = judge.Rows("test")[0];
  EXPECT_EQ(row.found, "host down: host h3");
  EXPECT_EQ(row.found_s, 3);
  EXPECT_EQ(row.over_s, 10);
}

TEST(FleetTruthJudge, AnotherCausePlaceOrNumberIsNot) {
  EXPECT_EQ(WrongWith({}, {}), "it was not found");
  for (const Said& wrong : {Open("1", "agent gone", "host h3"), Open("1", "host down", "host h30")})
    EXPECT_EQ(WrongWith({wrong}, {Over(wrong)}), "it was not found, something else was found");
  const Said late = Open("2", "link grey", "link 10.0.1.1>10.0.1.11"), twice = Open("3", "host down", "host h3");
  EXPECT_EQ(WrongWith({kRight}, {Over(kRight), Over(late)}), "something else was found");
  EXPECT_EQ(WrongWith({kRight, twice}, {Over(kRight), Over(twice)}), "something else was found");
}

TEST(FleetTruthJudge, ThatItEndsTooSoonOrTooLateIsNot) {
  EXPECT_EQ(WrongWith({Over(kRight)}, {Over(kRight)}), "its finding was over before it was mended");
  EXPECT_EQ(WrongWith({kRight}, {kRight}), "its finding was not over in time");
}

TEST(FleetTruthJudge, WhatWasThereBeforeCountsWhenItOpensAgain) {
  const Said old = Over(Open("9", "link dead", "cable leaf0 = spine0"));
  EXPECT_EQ(WrongWith({kRight, old}, {Over(kRight), old}, {old}), "");
  const Said again = Open("9", "link dead", "cable leaf0 = spine0");
  EXPECT_EQ(WrongWith({kRight, again}, {Over(kRight), old}, {old}), "something else was found");
}

// Each outage of a cable that flaps is over when it lives again, until it is known to flap.
TEST(FleetTruthJudge, WhatWasSomethingElseMayHaveBeenOverBeforeItWasRight) {
  const TruthCase c = PowerOfH3();
  const Said other = Open("1", "agent gone", "host h3");
  for (const bool again : {false, true}) {
    Judge judge({&c}, {}, kBegan);
    judge.Look({other}, At(2));
    judge.Look({Over(other)}, At(3));
    judge.Look({kRight}, At(4));
    if (again) judge.Look({Over(kRight)}, At(5));
    judge.Mended(At(20));
    judge.Look({Over(kRight)}, At(30));
    EXPECT_EQ(judge.Rows("test")[0].wrong, again ? "its finding was over before it was mended" : "");
  }
}

TEST(FleetTruthJudge, PlacesAreExact) {
  const auto in = [](const std::string& place, const std::string& scope) {
    TruthCase c = PowerOfH3();
    c.right = {{"link dead", place}};
    return IsRight(c, Open("1", "link dead", scope));
  };
  EXPECT_TRUE(in(OfUplink(2, 1), "link 10.0.2.1>10.1.1.4"));
  EXPECT_TRUE(in(OfUplink(2, 1), "link leaf2>spine1 (10.1.1.4)"));
  EXPECT_FALSE(in(OfUplink(2, 1), "link spine1>leaf2"));
  EXPECT_FALSE(in(OfUplink(2, 1), "link 10.1.1.4>10.1.1.3"));
  EXPECT_FALSE(in(OfUplink(2, 1), "link 10.0.2.1>10.1.1.44"));
  EXPECT_FALSE(in(OfUplink(2, 1), "cable leaf2 = spine1"));
  EXPECT_TRUE(in(OfCable(2, 1), "cable leaf2 = spine1"));
  EXPECT_FALSE(in(OfCable(2, 1), "cable leaf2 = spine10"));
  EXPECT_TRUE(in(OfNic(2, "eth0", "10.0.1.10"), "NIC 10.0.1.10"));
  EXPECT_FALSE(in(OfNic(2, "eth0", "10.0.1.1"), "NIC 10.0.1.10"));
  EXPECT_FALSE(in(OfLeaf(1), "host leaf1"));
}

}  // namespace
}  // namespace cw::lab
