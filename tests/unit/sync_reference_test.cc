// SPDX-License-Identifier: Apache-2.0
// Of whom a bound is told and how far away that is; who is believed, and what the mean over these is.
#include "sync/reference.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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
      std::vector<Reference::Told> told = {{&other, 5000, 300, 100}};
      if (heard) told.push_back({&claim, 5000, 300, 100});
      r.Update(99, now_ns, now_ns, true, told, 1000);
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
  const std::vector<Reference::Told> told = {{&claim, 5000, 300, 100}};
  r.Update(99, 0, 0, true, told, 1000);
  EXPECT_EQ(r.id(), 7u);
  std::vector<Reference::Told> old = told;
  old[0].age_s = 1.8;
  r.Update(99, 1'800'000'000, 0, true, old, 1000);
  EXPECT_EQ(r.id(), 7u);
  for (int64_t now_ns = 2'000'000'000; now_ns < 30'000'000'000; now_ns += 100'000'000)
    r.Update(99, now_ns, 0, /*eligible=*/false, {}, 1000);
  claim.reference_seq = 300;
  r.Update(99, 30'000'000'000, 0, true, told, 1000);
  EXPECT_EQ(r.id(), 7u);
  EXPECT_EQ(r.published_ns(), 5300);
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

TEST(Reference, ADistanceIsNotSmallerThanTheSmallestHonestOne) {
  std::vector<FleetClaim> claims(7);
  std::vector<Reference::Told> told;
  for (size_t i = 0; i < claims.size(); ++i) {
    claims[i].host_id = 100 + i;
    claims[i].reference_id = 7;
    claims[i].reference_seq = 50;
    claims[i].bound_ns = 20'000 + 1000 * static_cast<int64_t>(i);
    claims[i].hops = 3;
    told.push_back({&claims[i], 5000, /*bent_ns=*/300, /*grown_ns=*/100});
  }
  Reference honest, lied, direct;
  honest.Update(99, 0, 0, false, told, 1000);
  EXPECT_EQ(honest.id(), 7u);
  EXPECT_EQ(honest.hops(), 4u);
  EXPECT_DOUBLE_EQ(honest.relayed_ns(), 25'100);
  EXPECT_DOUBLE_EQ(honest.published_ns(), 27'100) << "the third smallest of seven";
  claims[5].bound_ns = claims[6].bound_ns = 0;
  lied.Update(99, 0, 0, false, told, 1000);
  EXPECT_GE(lied.published_ns(), 25'100);
  EXPECT_GE(lied.relayed_ns(), 25'100 - 2 * 5000);
  claims[3].host_id = 7;  // the reference itself
  direct.Update(99, 0, 0, false, told, 1000);
  EXPECT_DOUBLE_EQ(direct.published_ns(), 5300);
  EXPECT_EQ(direct.hops(), 1u);
  // Nothing newer: the distance grows with time, and after a while the reference is given up.
  direct.Update(99, 1'000'000'000, 0, false, told, 1000);
  EXPECT_DOUBLE_EQ(direct.published_ns(), 6300);
  direct.Update(99, 2'000'000'000, 2'000'000'000, true, told, 1000);
  EXPECT_EQ(direct.id(), 99u);
  EXPECT_EQ(direct.published_ns(), 0);
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
}

}  // namespace
}  // namespace cw::sync
