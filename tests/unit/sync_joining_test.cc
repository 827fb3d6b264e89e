// SPDX-License-Identifier: Apache-2.0
// When a host that has just settled may say that it is synchronised, and whom it hears while it looks for a time.
#include <gtest/gtest.h>

#include <set>

#include "sync/fleet_bound.h"
#include "tests/unit/sync_swarm.h"

namespace cw::sync {
namespace {

// Four hosts, of which one may lie. Those of `looking` tell for ever that they look for a time.
Swarm FourHosts(const std::set<size_t>& looking) {
  Swarm s({.hosts = 4});
  s.twist = [looking](size_t from, size_t, double, FleetClaim& c) {
    if (looking.contains(from)) c.state = SyncState::kUnknown;
  };
  return s;
}

TEST(Joining, WhoHearsATimeOfNoMoreThanMayLieDoesNotVouchForIt) {
  Swarm s = FourHosts({1, 2});
  bool settled = false;
  s.Run(30, [&](size_t i) {
    if (i != 0) return;
    const FleetTime& time = s.Time(0);
    settled |= time.state == SyncState::kFreeRunning;
    EXPECT_NE(time.state, SyncState::kSynchronised) << "the only other with a time may be the liar, at " << s.now_s();
    EXPECT_GE(static_cast<double>(time.bound_ns), kNowhereNs) << s.now_s();
  });
  EXPECT_TRUE(settled) << "others may take its time over";
}

TEST(Joining, OneMoreThanMayLieIsEnough) {
  Swarm s = FourHosts({2});
  s.Run(4);
  EXPECT_EQ(s.Time(0).state, SyncState::kSynchronised);
  EXPECT_LT(s.Time(0).bound_ns, 1'000'000);
}

TEST(Joining, WhoIsHeardByNobodyKeepsABoundOfItsOwn) {
  Swarm s({.hosts = 4});
  s.twist = [](size_t, size_t to, double, FleetClaim& c) {
    if (to == 0) c.timeline = 0;  // says nothing
  };
  s.Run(10);
  EXPECT_EQ(s.Time(0).state, SyncState::kFreeRunning);
  EXPECT_LT(static_cast<double>(s.Time(0).bound_ns), kNowhereNs);
}

// Two who have a time contradict each other: the third who looks for one decides.
TEST(Joining, ALiarWhoContradictsTheOnlyHonestTimeHoldsNobody) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Swarm s({.hosts = 4, .seed = seed});
    s.twist = [](size_t from, size_t to, double, FleetClaim& c) {
      if (from == 3) c.offset_ns += to % 2 == 0 ? 20'000 : -20'000;
    };
    s.Run(30);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(s.Time(i).state, SyncState::kSynchronised) << i << ", seed " << seed;
  }
}

}  // namespace
}  // namespace cw::sync
