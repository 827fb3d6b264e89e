// SPDX-License-Identifier: Apache-2.0
// By whose name people call the fleet's time; how far hosts can be apart; who is believed, and what the mean over these
// is.
#include "sync/reference.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sync/fleet_bound.h"
#include "sync/vote.h"

namespace cw::sync {
namespace {

// Seconds from the end of a silence until the reference is named again.
double TakenBackAfter(Reference& r, int64_t& now_ns, double silent_s) {
  FleetClaim claim;
  claim.host_id = claim.reference_id = 7;
  FleetClaim other;
  other.host_id = other.reference_id = 200;
  const auto run = [&](double seconds, bool heard) {
    const int64_t begin = now_ns, end = now_ns + static_cast<int64_t>(seconds * 1e9);
    for (; now_ns < end; now_ns += 100'000'000) {
      claim.reference_seq = static_cast<uint32_t>(now_ns / 100'000'000);
      other.reference_seq = claim.reference_seq;
      std::vector<Reference::Told> told = {{&other}};
      if (heard) told.push_back({&claim});
      r.Update(99, now_ns, now_ns, true, told);
      if (heard && r.id() == 7) return static_cast<double>(now_ns - begin) * 1e-9;
    }
    return seconds;
  };
  run(silent_s, false);
  EXPECT_EQ(r.id(), 99u);
  return run(100, true);
}

TEST(Reference, WhoHearsNobodyKeepsIt) {
  Reference r;
  FleetClaim claim;
  claim.host_id = claim.reference_id = 7;
  claim.reference_seq = 10;
  const std::vector<Reference::Told> told = {{&claim}};
  r.Update(99, 0, 0, true, told);
  EXPECT_EQ(r.id(), 7u);
  std::vector<Reference::Told> old = told;
  old[0].age_s = 1.8;
  r.Update(99, 1'800'000'000, 0, true, old);
  EXPECT_EQ(r.id(), 7u);
  for (int64_t now_ns = 2'000'000'000; now_ns < 30'000'000'000; now_ns += 100'000'000)
    r.Update(99, now_ns, now_ns, /*eligible=*/false, {});
  claim.reference_seq = 300;
  r.Update(99, 30'000'000'000, 30'000'000'000, true, told);
  EXPECT_EQ(r.id(), 7u);
}

TEST(Reference, OneThatWasSilentIsTakenBackSoonButNotIfItFlickers) {
  Reference r;
  int64_t now_ns = 100'000'000'000;
  EXPECT_LT(TakenBackAfter(r, now_ns, 0.2), 0.2) << "not yet known";
  double last_s = 0;
  for (int i = 0; i < 6; ++i) {
    const double s = TakenBackAfter(r, now_ns, 2);
    if (i == 0) {
      EXPECT_GT(s, 3);
      EXPECT_LT(s, 6);
    }
    EXPECT_GE(s, last_s);
    last_s = s;
  }
  EXPECT_GT(last_s, 50);
  EXPECT_LT(last_s, 61);
}

// A round that is yet to come would make all honest ones old, and their reference silent.
TEST(Reference, ARoundThatIsYetToComeIsNotBelieved) {
  Reference r;
  FleetClaim honest, forged;
  honest.host_id = 30;
  forged.host_id = 40;
  honest.reference_id = forged.reference_id = 7;
  honest.hops = forged.hops = 1;
  for (int64_t now_ns = 0; now_ns < 10'000'000'000; now_ns += 100'000'000) {
    honest.reference_seq = static_cast<uint32_t>(now_ns / 100'000'000) + 3;
    forged.reference_seq = honest.reference_seq + 100'000;
    r.Update(99, now_ns, now_ns, false, {{&forged}, {&honest}});
    EXPECT_EQ(r.id(), 7u);
    EXPECT_EQ(r.seq(), honest.reference_seq);
  }
}

std::vector<FleetBound::Told> Neighbours(size_t count, double apart_ns, double width_ns) {
  return std::vector<FleetBound::Told>(count, {apart_ns, width_ns});
}

TEST(FleetBound, LiarsAsManyAsAreAllowedMakeItNeitherLargerNorSmaller) {
  for (const double lie_ns : {0.0, 1e9, 1e18}) {
    FleetBound honest, lied;
    std::vector<FleetBound::Told> told = Neighbours(10, 12'000, 12'000);
    honest.Update(0.1, told, 3, {}, 250'000);
    for (size_t i = 0; i < 3; ++i) told[3 * i] = {lie_ns, lie_ns};
    for (int round = 0; round < 50; ++round) lied.Update(0.1, told, 3, {}, 250'000);
    EXPECT_DOUBLE_EQ(lied.width_ns(), honest.width_ns());
    EXPECT_DOUBLE_EQ(lied.width_ns(), 12'000);
  }
}

// Two camps, half of the neighbours in the other one: who sees that tells it, and who does not see it hears it.
TEST(FleetBound, ACampThatIsFarOffIsSeenOrHeardOf) {
  std::vector<FleetBound::Told> told = Neighbours(10, 12'000, 0);
  for (size_t i = 0; i < 5; ++i) told[i].apart_ns = 1e9;
  FleetBound sees, hears;
  sees.Update(0.1, told, 3, {}, 250'000);
  EXPECT_GE(sees.width_ns(), 1e9);
  hears.Update(0.1, Neighbours(10, 12'000, sees.width_ns()), 3, {}, 250'000);
  EXPECT_GE(hears.bound_ns(2), 1e9);
}

TEST(FleetBound, WhatNobodySeesAnyMoreDiesAwayInsteadOfBeingToldInCircles) {
  FleetBound a, b;
  a.Update(0.1, Neighbours(10, 1e6, 0), 3, {}, 250'000);
  for (int round = 0; round < 70; ++round) {
    b.Update(0.1, Neighbours(10, 12'000, a.width_ns()), 3, {}, 250'000);
    a.Update(0.1, Neighbours(10, 12'000, b.width_ns()), 3, {}, 250'000);
  }
  EXPECT_DOUBLE_EQ(a.width_ns(), 12'000);
}

// A few neighbours that are down are no part of a fleet; more may be one, which runs off.
TEST(FleetBound, NeighboursThatAreOutOfReachWidenItWithTime) {
  FleetBound few, many, none;
  few.Update(0.1, Neighbours(7, 12'000, 0), 2, {100, 100, 100}, 250'000);
  EXPECT_DOUBLE_EQ(few.width_ns(), 12'000);
  many.Update(0.1, Neighbours(6, 12'000, 0), 1, {100, 100, 100, 20}, 250'000);
  EXPECT_DOUBLE_EQ(many.width_ns(), 5'000'000) << "the fourth longest: 20 s of 250 ppm";
  none.Update(0.1, {}, 0, {8}, 250'000);
  EXPECT_DOUBLE_EQ(none.width_ns(), 2'000'000);
}

TEST(FleetBound, LinksBetweenAnyTwoHostsGrowAsTheLogarithmOfTheFleet) {
  EXPECT_EQ(BoundHops(2), 1);
  EXPECT_EQ(BoundHops(17), 1);
  EXPECT_EQ(BoundHops(1'000), 5);
  EXPECT_LE(BoundHops(100'000), 6);
  FleetBound b;
  EXPECT_EQ(b.bound_ns(5), 0);
  b.Update(0.1, Neighbours(10, 12'000, 0), 3, {}, 250'000);
  EXPECT_DOUBLE_EQ(b.bound_ns(1), 12'000);
  EXPECT_GE(b.bound_ns(5), 60'000);
  EXPECT_LE(b.bound_ns(5), 75'000);
}

TEST(Vote, TheLargestSetThatCanBeRightTogether) {
  std::vector<Opinion> o = {{1, 2}, {0, 2}, {-1, 2}, {50, 2}, {51, 2}};
  Clique c = FindClique(o, 1);
  EXPECT_EQ(c.members, 3);
  EXPECT_TRUE(c.with_us);
  EXPECT_FALSE(o[3].member);
  o = {{50, 2}, {51, 2}, {0, 2}};  // two against one and us: we stand with it
  c = FindClique(o, 1);
  EXPECT_TRUE(c.with_us);
  EXPECT_EQ(c.members, 1);
  o = {{50, 2}, {51, 2}};
  c = FindClique(o, 1);
  EXPECT_FALSE(c.with_us);
  EXPECT_EQ(c.members, 2);
}

TEST(Vote, ExtremesAreLeftOut) {
  std::vector<Opinion> o = {{5, 0, 1, true}, {-900, 0, 1, true}, {1, 0, 1, true}, {3, 0, 1, true}, {700, 0, 1, true}};
  EXPECT_DOUBLE_EQ(TrimmedMean(o, 1), 3);
  EXPECT_TRUE(o[1].trimmed);
  EXPECT_TRUE(o[4].trimmed);
  o = {{2, 0, 1, true}, {4, 0, 3, true}};
  EXPECT_DOUBLE_EQ(TrimmedMean(o, 1), 3.5) << "never leaves out all";
  EXPECT_EQ(MostLiars(8), 2);
  EXPECT_EQ(MostLiars(3), 0);
  EXPECT_EQ(MostLiarsOfAll(3), 1) << "one of four hosts";
  EXPECT_EQ(MostLiarsOfAll(2), 0);
}

}  // namespace
}  // namespace cw::sync
