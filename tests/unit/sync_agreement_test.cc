// SPDX-License-Identifier: Apache-2.0
#include "sync/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "sync/neighbours.h"
#include "sync/vote.h"
#include "tests/unit/sync_swarm.h"

namespace cw::sync {
namespace {

// Distances from the mean of those asked for, sampled at every round.
class Errors {
 public:
  Errors(const Swarm& swarm, std::function<bool(size_t)> honest) : swarm_(swarm), honest_(std::move(honest)) {}
  void operator()(size_t) {
    if (swarm_.now_s() - last_s_ < 0.1) return;
    last_s_ = swarm_.now_s();
    double sum = 0, n = 0;
    for (size_t i = 0; i < swarm_.hosts.size(); ++i) {
      if (Judged(i)) sum += swarm_.Fleet(i), ++n;
    }
    for (size_t i = 0; i < swarm_.hosts.size(); ++i) {
      if (!Judged(i)) continue;
      const double error = std::abs(swarm_.Fleet(i) - sum / n);
      all.push_back(error);
      estimates.push_back(static_cast<double>(swarm_.Time(i).error_est_ns));
      covered += error <= estimates.back();
    }
  }
  double Quantile(double p) const { return At(all, p); }
  double Estimate() const { return At(estimates, 0.5); }
  double Coverage() const { return static_cast<double>(covered) / static_cast<double>(all.size()); }

  std::vector<double> all, estimates;
  size_t covered = 0;

 private:
  bool Judged(size_t i) const { return swarm_.hosts[i].up && (!honest_ || honest_(i)); }
  static double At(std::vector<double> v, double p) {
    std::sort(v.begin(), v.end());
    return v[static_cast<size_t>(p * static_cast<double>(v.size() - 1))];
  }
  const Swarm& swarm_;
  std::function<bool(size_t)> honest_;
  double last_s_ = 0;
};

// Every two hosts of one timeline are within the sum of their bounds.
void ExpectBounds(const Swarm& s, const std::function<bool(size_t)>& honest = {}) {
  for (size_t i = 0; i < s.hosts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!s.hosts[i].up || !s.hosts[j].up || (honest && (!honest(i) || !honest(j)))) continue;
      const FleetTime &a = s.Time(i), &b = s.Time(j);
      if (a.state != SyncState::kSynchronised || b.state != SyncState::kSynchronised) continue;
      if (s.hosts[i].agreement->Claim().timeline != s.hosts[j].agreement->Claim().timeline) continue;
      ASSERT_LE(std::abs(s.Fleet(i) - s.Fleet(j)), static_cast<double>(a.bound_ns + b.bound_ns))
          << i << " and " << j << " at " << s.now_s();
    }
  }
}

std::vector<uint32_t> Epochs(const Swarm& s) {
  std::vector<uint32_t> e;
  for (size_t i = 0; i < s.hosts.size(); ++i) e.push_back(s.Time(i).epoch);
  return e;
}

TEST(Agreement, SettlesWithinThreeSecondsAndStaysWithOldClaims) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Swarm s({.seed = seed});
    s.Run(3);
    EXPECT_TRUE(s.All(SyncState::kSynchronised)) << seed;
    const double early = s.Spread();
    s.Run(17);
    const auto epochs = Epochs(s);
    Errors errors(s, {});
    s.Run(30, [&](size_t i) {
      errors(i);
      EXPECT_EQ(s.Time(i).state, SyncState::kSynchronised);
    });
    std::printf("seed %d: spread after 3 s %.0f ns; then p50 %.1f p99 %.1f max %.1f, error_est %.0f ns covers %.4f\n",
                static_cast<int>(seed), early, errors.Quantile(0.5), errors.Quantile(0.99), errors.Quantile(1),
                errors.Estimate(), errors.Coverage());
    EXPECT_LT(early, 200);
    EXPECT_LT(errors.Quantile(0.99), 30);
    EXPECT_GE(errors.Coverage(), 0.9999);
    EXPECT_LE(errors.Estimate(), 4 * errors.Quantile(0.99));
    EXPECT_EQ(Epochs(s), epochs);
  }
}

TEST(Agreement, FleetTimeIsNeverSteppedOnceSettled) {
  Swarm s({.hosts = 12});
  s.Run(6);
  std::vector<double> last(s.hosts.size());
  std::vector<FleetTime> before;
  for (size_t i = 0; i < s.hosts.size(); ++i) before.push_back(s.Time(i));
  s.Run(20, [&](size_t i) {
    const FleetTime& now = s.Time(i);
    EXPECT_LE(std::llabs(now.ToFleetNs(now.anchor_ns) - before[i].ToFleetNs(now.anchor_ns)), 1);
    before[i] = now;
  });
}

TEST(Agreement, FewHosts) {
  for (const int n : {1, 2, 3, 4}) {
    Swarm s({.hosts = n});
    s.Run(4);
    EXPECT_TRUE(s.All(SyncState::kSynchronised)) << n;
    s.Run(20, [&](size_t) { ExpectBounds(s); });
    EXPECT_LT(s.Spread(), 150) << n;
    EXPECT_EQ(s.Time(0).reference, s.Time(s.hosts.size() - 1).reference);
  }
}

// A fully linked swarm of 9, so that each of the honest has the same liars: d = 8, f = 2.
struct Lied {
  double honest_p99 = 0;
  int named = 0, accused = 0, pairs = 0;
  bool synchronised = true, unknown = true;
  double moved = 0;
};

Lied RunLiars(int liars, const std::function<double(size_t from, double since_s)>& lie, uint64_t seed) {
  Swarm s({.hosts = 9, .seed = seed});
  const auto honest = [&](size_t i) { return i >= static_cast<size_t>(liars); };
  const double from_s = s.now_s() + 8;
  s.twist = [&](size_t from, size_t, double at_s, FleetClaim& c) {
    if (!honest(from) && at_s > from_s) c.offset_ns += std::llround(lie(from, at_s - from_s));
  };
  s.Run(8.5);
  std::map<size_t, double> start;
  double mean = 0;
  for (size_t i = 0; i < 9; ++i) mean += honest(i) ? s.Fleet(i) / (9 - liars) : 0;
  s.Run(12);
  Lied r;
  Errors errors(s, honest);
  s.Run(20, [&](size_t i) {
    errors(i);
    if (!honest(i)) return;
    r.synchronised &= s.Time(i).state == SyncState::kSynchronised;
    r.unknown &= s.Time(i).state == SyncState::kUnknown;
  });
  r.honest_p99 = errors.Quantile(0.99);
  double later = 0;
  for (size_t i = 0; i < 9; ++i) later += honest(i) ? s.Fleet(i) / (9 - liars) : 0;
  r.moved = later - mean;
  for (size_t i = 0; i < 9; ++i) {
    for (size_t j = 0; j < 9; ++j) {
      if (i == j || !honest(i)) continue;
      const bool x = s.Verdict(i, j) == Reason::kFalseTicker;
      (honest(j) ? r.accused : r.named) += x;
      r.pairs += !honest(j);
    }
  }
  return r;
}

TEST(Agreement, LiarsUpToAThirdAreNamedAndDisturbNobody) {
  const auto constant = [](size_t from, double) { return from % 2 ? 3000.0 : -3000.0; };
  const auto colluding = [](size_t, double) { return 100'000.0; };
  const auto ramping = [](size_t, double since_s) { return 50 * since_s; };
  const auto fast = [](size_t, double since_s) { return 5000 * since_s; };
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const double honest = RunLiars(0, constant, seed).honest_p99;
    for (const auto& lie : {std::function<double(size_t, double)>(constant), {colluding}, {ramping}, {fast}}) {
      const Lied r = RunLiars(2, lie, seed);
      std::printf("seed %d: p99 %.1f ns, honest case %.1f; named %d of %d, accused %d\n", static_cast<int>(seed),
                  r.honest_p99, honest, r.named, r.pairs, r.accused);
      EXPECT_LE(r.honest_p99, 2 * honest);
      EXPECT_EQ(r.named, r.pairs);
      EXPECT_EQ(r.accused, 0);
      EXPECT_TRUE(r.synchronised);
    }
  }
}

TEST(Agreement, HalfOfTheNeighboursLyingIsRefusedAndNotFollowed) {
  for (const int liars : {3, 4}) {
    const Lied r = RunLiars(
        liars, [](size_t, double) { return 50'000.0; }, 1);
    EXPECT_TRUE(r.unknown) << liars;
    const Lied none = RunLiars(
        liars, [](size_t, double) { return 0.0; }, 1);
    EXPECT_TRUE(none.synchronised);
    EXPECT_LT(std::abs(r.moved - none.moved), 5000) << liars;  // clocks that are left alone for 32 s
  }
}

TEST(Agreement, ClaimsThatAreNoNumbersAreNotHeard) {
  Swarm s({.hosts = 9});
  s.twist = [](size_t from, size_t, double, FleetClaim& c) {
    if (from == 0) c.slope_ppb = NAN;
    if (from == 1) c.offset_ns = INT64_MIN, c.width_ns = INT64_MIN, c.error_est_ns = INT64_MAX;
  };
  s.Run(10);
  for (size_t i = 2; i < 9; ++i) {
    EXPECT_EQ(s.Time(i).state, SyncState::kSynchronised);
    EXPECT_EQ(s.Verdict(i, 0), Reason::kWaiting);
    EXPECT_EQ(s.Verdict(i, 1), Reason::kFalseTicker);
  }
  EXPECT_LT(s.Spread([](size_t i) { return i > 1; }), 100);
}

TEST(Agreement, ALiarThatRepentsIsLetBackIn) {
  Swarm s({.hosts = 9});
  bool lies = false;
  s.twist = [&](size_t from, size_t, double, FleetClaim& c) {
    if (lies && from == 0) c.offset_ns += 20'000;
  };
  s.Run(8);
  lies = true;
  s.Run(5);
  EXPECT_EQ(s.Verdict(3, 0), Reason::kFalseTicker);
  lies = false;
  s.Run(3);
  EXPECT_EQ(s.Verdict(3, 0), Reason::kFalseTicker) << "remembered for a while";
  s.Run(22);
  const Reason after = s.Verdict(3, 0);
  EXPECT_TRUE(after == Reason::kUsed || after == Reason::kTrimmed) << static_cast<char>(after);
}

TEST(Agreement, AStepOfOneClockIsFoundWithinASecondAndDisturbsNobody) {
  for (const double step_ns : {1e9, -1e9, 200e3}) {
    Swarm s({.hosts = 12});
    s.Run(15);
    auto epochs = Epochs(s);
    s.Step(4, step_ns);
    s.Run(1);
    EXPECT_LT(s.Spread(), 500) << step_ns;
    Errors errors(s, {});
    s.Run(5, [&](size_t i) {
      errors(i);
      EXPECT_TRUE(i == 4 || s.Time(i).state == SyncState::kSynchronised) << i;
    });
    EXPECT_TRUE(s.All(SyncState::kSynchronised));
    EXPECT_LT(errors.Quantile(0.99), 100);
    EXPECT_GT(s.Time(4).epoch, epochs[4]);
    epochs[4] = s.Time(4).epoch;
    EXPECT_EQ(Epochs(s), epochs);
  }
}

TEST(Agreement, OfTwoHostsOneFollowsAfterAStep) {
  for (const size_t stepped : {0, 1}) {
    Swarm s({.hosts = 2});
    s.Run(6);
    s.Step(stepped, 1e6);
    s.Run(3);
    EXPECT_TRUE(s.All(SyncState::kSynchronised));
    EXPECT_LT(s.Spread(), 300);
  }
}

TEST(Agreement, ADisruptedHostComesBackWithANewEpoch) {
  Swarm s({.hosts = 10});
  s.Run(10);
  auto epochs = Epochs(s);
  s.Step(2, 3e9);
  s.hosts[2].agreement->Disrupted(s.Local(2));
  EXPECT_EQ(s.Time(2).trouble, FleetTrouble::kDisrupted);
  EXPECT_STREQ(FleetStateName(s.Time(2)), "disrupted");
  EXPECT_EQ(s.Time(2).state, SyncState::kUnknown);
  s.Run(2);
  EXPECT_TRUE(s.All(SyncState::kSynchronised));
  EXPECT_LT(s.Spread(), 300);
  EXPECT_GT(s.Time(2).epoch, epochs[2]);
  epochs[2] = s.Time(2).epoch;
  EXPECT_EQ(Epochs(s), epochs);
}

TEST(Agreement, AChangeOfACrystalIsFollowed) {
  Swarm s({.hosts = 12});
  s.Run(10);
  const auto epochs = Epochs(s);
  s.SetDrift(5, s.hosts[5].drift_ppb / 1000 + 20);
  s.Run(6);
  EXPECT_LT(s.Spread(), 200);
  EXPECT_EQ(Epochs(s), epochs);
  s.SetDrift(6, -100);  // so much that its fleet time is beyond slewing before the slope has followed
  s.Run(6);
  EXPECT_LT(s.Spread(), 200);
  EXPECT_TRUE(s.All(SyncState::kSynchronised));
}

TEST(Agreement, HostsThatJoinLeaveOrRestartDisturbNobody) {
  Swarm s({.hosts = 16});
  s.hosts[3].up = false;
  s.Run(10);
  auto epochs = Epochs(s);
  s.Restart(3);
  s.Stop(7);
  s.Run(2);
  s.Restart(9);
  Errors errors(s, [](size_t i) { return i != 3 && i != 7 && i != 9; });
  s.Run(10, [&](size_t i) {
    errors(i);
    EXPECT_TRUE(i == 3 || i == 9 || s.Time(i).state == SyncState::kSynchronised) << i;
  });
  EXPECT_LT(errors.Quantile(0.99), 40);
  EXPECT_LT(s.Spread(), 150);
  EXPECT_TRUE(s.All(SyncState::kSynchronised));
  for (const size_t i : {3, 7, 9}) epochs[i] = s.Time(i).epoch;
  EXPECT_EQ(Epochs(s), epochs);
}

TEST(Agreement, APartitionKeepsItsAgreementAndMergesWithoutAStep) {
  Swarm s({.hosts = 16});
  s.Run(10);
  const auto epochs = Epochs(s);
  const auto left = [](size_t i) { return i < 8; };
  const auto right = [](size_t i) { return i >= 8; };
  s.cut = [&](size_t a, size_t b) { return left(a) != left(b); };
  s.Run(2);
  for (size_t i = 8; i < 16; ++i) s.SetDrift(i, s.hosts[i].drift_ppb / 1000 - 3);  // it gets cold: the parts run apart
  s.Run(20);
  EXPECT_LT(s.Spread(left), 150);
  EXPECT_LT(s.Spread(right), 150);
  const double apart = s.Spread();
  EXPECT_GT(apart, 3000);
  std::vector<FleetTime> before;
  for (size_t i = 0; i < 16; ++i) before.push_back(s.Time(i));
  s.cut = {};
  s.Run(60, [&](size_t i) {
    const FleetTime& now = s.Time(i);
    EXPECT_LE(std::llabs(now.ToFleetNs(now.anchor_ns) - before[i].ToFleetNs(now.anchor_ns)), 1) << "a step";
    EXPECT_EQ(now.state, SyncState::kSynchronised) << i << " " << FleetTroubleName(now.trouble);
    before[i] = now;
    ExpectBounds(s);
  });
  std::printf("apart %.0f ns, after a minute %.0f ns\n", apart, s.Spread());
  EXPECT_LT(s.Spread(), 200);
  EXPECT_EQ(Epochs(s), epochs);
}

// Halves a second apart meet: no time is told while they contradict each other, and one goes over within five seconds.
TEST(Agreement, HalvesThatMeetFarApartSaySoAndOneGoesOver) {
  for (const int hosts : {8, 9, 24, 40}) {
    Swarm s({.hosts = hosts});
    const auto ahead = [&](size_t i) { return 2 * i < static_cast<size_t>(hosts); };
    s.Run(6);
    s.cut = [&](size_t i, size_t j) { return ahead(i) != ahead(j); };
    s.Run(1);
    for (size_t i = 0; i < s.hosts.size(); ++i) {
      if (ahead(i)) s.Step(i, 1e9);
    }
    s.Run(4);
    const auto epochs = Epochs(s);
    s.cut = nullptr;
    std::set<FleetTrouble> told;
    s.Run(5, [&](size_t i) { told.insert(s.Time(i).trouble); });
    EXPECT_TRUE(s.All(SyncState::kSynchronised)) << hosts;
    EXPECT_LT(s.Spread(), 1000) << hosts;
    EXPECT_TRUE(told.count(FleetTrouble::kSplit)) << hosts;
    const auto now = Epochs(s);
    EXPECT_NE(now, epochs) << "who went over has another epoch";
  }
}

TEST(Agreement, AnIsolatedHostRunsFreeAndComesBackWithoutAStep) {
  Swarm s({.hosts = 12});
  s.Run(10);
  const auto epochs = Epochs(s);
  s.cut = [](size_t a, size_t b) { return a == 0 || b == 0; };
  s.Run(8);
  EXPECT_EQ(s.Time(0).state, SyncState::kFreeRunning);
  EXPECT_EQ(s.Time(0).trouble, FleetTrouble::kIsolated);
  EXPECT_GT(s.Time(0).bound_ns, 1'000'000) << "grows";
  s.cut = {};
  s.Run(6);
  EXPECT_TRUE(s.All(SyncState::kSynchronised));
  EXPECT_EQ(Epochs(s), epochs);
  EXPECT_LT(s.Spread(), 200);
}

TEST(Agreement, OfTwoTimelinesThatMeetOneSideMoves) {
  for (const int first : {5, 3, 7}) {
    Swarm s({.hosts = 9});
    const auto left = [&](size_t i) { return i < static_cast<size_t>(first); };
    s.cut = [&](size_t a, size_t b) { return left(a) != left(b); };
    s.Run(10);
    std::set<uint64_t> timelines;
    for (auto& h : s.hosts) timelines.insert(h.agreement->Claim().timeline);
    ASSERT_EQ(timelines.size(), 2u);
    const auto epochs = Epochs(s);
    s.cut = {};
    s.Run(8);
    EXPECT_TRUE(s.All(SyncState::kSynchronised)) << first;
    EXPECT_LT(s.Spread(), 200) << first;
    int moved_left = 0, moved_right = 0;
    for (size_t i = 0; i < 9; ++i) {
      const uint32_t steps = s.Time(i).epoch - epochs[i];
      EXPECT_LE(steps, 1u) << "flapping";
      (left(i) ? moved_left : moved_right) += static_cast<int>(steps);
    }
    EXPECT_TRUE(moved_left == 0 || moved_right == 0) << moved_left << " and " << moved_right;
    EXPECT_GT(moved_left + moved_right, 0);
  }
}

TEST(Agreement, LiarsOnATimelineOfTheirOwnMoveNobody) {
  Swarm s({.hosts = 9});
  s.Run(8);
  const auto epochs = Epochs(s);
  s.twist = [](size_t from, size_t, double, FleetClaim& c) {
    if (from < 4) c.timeline = 1;  // the oldest there can be
  };
  s.Run(10);
  for (size_t i = 4; i < 9; ++i) {
    EXPECT_EQ(s.Time(i).epoch, epochs[i]);
    EXPECT_EQ(s.Verdict(i, 0), Reason::kTimeline);
  }
}

// As many liars as fit so that nobody has more of them among its neighbours than may lie.
std::vector<bool> LiarsOf(const Swarm& s) {
  std::vector<bool> lies(s.hosts.size(), false);
  std::vector<int> lying(s.hosts.size(), 0);
  for (size_t i = 0; i < s.hosts.size(); ++i) {
    const auto& peers = s.hosts[i].peers;
    lies[i] = std::all_of(peers.begin(), peers.end(),
                          [&](size_t p) { return lying[p] < MostLiars(static_cast<int>(s.hosts[p].peers.size())); });
    for (const size_t p : peers) lying[p] += lies[i];
  }
  return lies;
}

// Returns the least and the largest bound of the honest.
std::pair<double, double> BoundsBeside(const std::function<void(FleetClaim&)>& forge) {
  Swarm s({.hosts = 40});
  const std::vector<bool> lies = LiarsOf(s);
  const auto honest = [&](size_t i) { return !lies[i]; };
  s.twist = [&](size_t from, size_t, double, FleetClaim& c) {
    if (lies[from]) forge(c);
  };
  s.Run(8);
  std::pair<double, double> r = {1e18, 0};
  s.Run(20, [&](size_t i) {
    ExpectBounds(s, honest);
    if (!honest(i)) return;
    EXPECT_EQ(s.Time(i).state, SyncState::kSynchronised);
    r = {std::min(r.first, static_cast<double>(s.Time(i).bound_ns)),
         std::max(r.second, static_cast<double>(s.Time(i).bound_ns))};
  });
  std::printf("bounds %.0f to %.0f ns\n", r.first, r.second);
  return r;
}

TEST(Agreement, ForgedClaimsNeitherBreakTheBoundNorWidenIt) {
  uint64_t lowest = UINT64_MAX;
  for (int i = 0; i < 40; ++i) lowest = std::min(lowest, HostId("h" + std::to_string(i)));
  const auto honest = BoundsBeside([](FleetClaim&) {});
  const std::function<void(FleetClaim&)> forgeries[] = {
      [&](FleetClaim& c) { c.host_id = c.reference_id = lowest, c.hops = 0; },
      [](FleetClaim& c) { c.width_ns = 0; },
      [](FleetClaim& c) { c.width_ns = 3'600'000'000'000; },
      [](FleetClaim& c) { c.reference_seq += 100'000; },
      [](FleetClaim& c) { c.reference_id = 1, c.hops = 1; },
  };
  for (const auto& forge : forgeries) {
    const auto forged = BoundsBeside(forge);
    EXPECT_GE(forged.first, 5'000) << "nobody can be nearer than one link";
    EXPECT_LE(forged.second, 1.3 * honest.second);
  }
}

TEST(Agreement, AClaimInAnotherHostsNameIsNotHeard) {
  Swarm s({.hosts = 9});
  s.twist = [](size_t from, size_t, double, FleetClaim& c) {
    if (from == 0) c.host_id = HostId("h5");
  };
  s.Run(6);
  EXPECT_EQ(s.Verdict(3, 0), Reason::kWaiting);
  EXPECT_EQ(s.Time(3).state, SyncState::kSynchronised);
}

TEST(Agreement, TwoHostsNameOneReferenceThroughASilence) {
  Swarm s({.hosts = 2});
  s.Run(12);
  const uint64_t before = s.hosts[0].agreement->Claim().reference_id;
  const auto same = [&](size_t) {
    for (const Swarm::Host& h : s.hosts) EXPECT_EQ(h.agreement->Claim().reference_id, before);
  };
  same(0);
  for (const double seconds : {1.2, 1.7, 2.5, 6.0}) {
    s.cut = [](size_t, size_t) { return true; };
    s.Run(seconds, same);
    s.cut = nullptr;
    s.Run(3, same);
  }
  ExpectBounds(s);
}

TEST(Agreement, AReferenceThatDiesIsReplacedAndDistancesDoNotCountToInfinity) {
  Swarm s({.hosts = 30});
  s.Run(12);
  size_t reference = 99;
  for (size_t i = 0; i < 30; ++i) {
    if (s.Time(5).reference == s.hosts[i].name || s.Time(5).reference == HostLabel(HostId(s.hosts[i].name)))
      reference = i;
  }
  ASSERT_NE(reference, 99u);
  s.Stop(reference);
  s.Run(15, [&](size_t) { ExpectBounds(s); });
  std::set<uint64_t> references;
  for (size_t i = 0; i < 30; ++i) {
    if (!s.hosts[i].up) continue;
    const FleetClaim c = s.hosts[i].agreement->Claim();
    references.insert(c.reference_id);
    EXPECT_LE(c.hops, 5u);
    EXPECT_LT(s.Time(i).bound_ns, 2'000'000);
  }
  EXPECT_EQ(references.size(), 1u);
  EXPECT_EQ(references.count(HostId(s.hosts[reference].name)), 0u);
}

}  // namespace
}  // namespace cw::sync
