// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fabric_sim.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/sim/discovery_sim.h"
#include "tests/sim/max_min.h"
#include "tests/sim/recovery_sim.h"

namespace cw::sim {
namespace {

// Made once: it simulates packets.
const LinkModel& LinksOf(int flows_per_nic) {
  static const LinkModel one(LinkOf({.flows_per_nic = 1}));
  static const LinkModel four(LinkOf({.flows_per_nic = 4}));
  return flows_per_nic == 4 ? four : one;
}

TEST(LinkModel, QueuesAndMarksGrowWithTheFlows) {
  const LinkModel& links = LinksOf(1);
  EXPECT_LT(links.Of(1).wait_ns, 200) << "one sender sends no more than the link takes";
  EXPECT_EQ(links.Of(1).mark_share, 0);
  for (const int n : {4, 8, 16}) {
    EXPECT_GT(links.Of(n).wait_ns, 0.9 * links.Of(n / 2).wait_ns) << n;
    EXPECT_GT(links.Of(n).mark_share, links.Of(n / 2).mark_share) << n;
    EXPECT_GT(links.Of(n).utilization, 0.9) << n;
  }
  EXPECT_GT(links.Of(2).wait_ns, 5 * links.Of(1).wait_ns);
  EXPECT_EQ(links.At(4, 7, 1'000'000).wait_ns, links.At(4, 7, 1'004'000).wait_ns) << "what one sees all see";
}

TEST(LinkModel, SendersThatCannotFillALinkLeaveItWithoutMarks) {
  EXPECT_EQ(LinksOf(4).Of(3).mark_share, 0) << "three of a quarter each";
  EXPECT_GT(LinksOf(4).Of(6).mark_share, 0);
}

TEST(MaxMin, FillsTheFullestLinkFirst) {
  std::vector<RoutedFlow> flows = {{2, {0, 2}}, {2, {0, 1}}, {1, {1}}, {1, {1}}};
  MaxMin sharing(3);
  sharing.Share(flows);
  EXPECT_DOUBLE_EQ(flows[1].rate, 1.0 / 3);
  EXPECT_DOUBLE_EQ(flows[0].rate, 2.0 / 3);
  EXPECT_EQ(sharing.HeldBack(1), 3);
  EXPECT_DOUBLE_EQ(sharing.ShareOn(1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(sharing.Load(2), 2.0 / 3);
}

TEST(FabricSim, SharesAreThoseOfOneFlowPerLink) {
  const FabricSimSpec spec{.ports = 4, .sending = 0.001, .seconds = 0.2};  // two NICs, each sends to the other
  const FabricSimResult r = SimulateFabric(spec, LinksOf(1));
  EXPECT_EQ(r.nics, 16);
  EXPECT_EQ(r.flows, 2);
  EXPECT_DOUBLE_EQ(r.windows.front().rates.least, 1);
  EXPECT_EQ(r.Sum(0, 1).moves, 0) << "nobody is in the way";
}

TEST(FabricSim, TheSameSeedGivesTheSame) {
  const FabricSimSpec spec{.ports = 8, .seconds = 0.3};
  const FabricSimResult a = SimulateFabric(spec, LinksOf(1)), b = SimulateFabric(spec, LinksOf(1));
  EXPECT_GT(a.Sum(0, 1).moves, 0);
  EXPECT_EQ(a.Sum(0, 1).moves, b.Sum(0, 1).moves);
  EXPECT_DOUBLE_EQ(a.windows.back().rates.mean, b.windows.back().rates.mean);
}

TEST(FabricSim, APlanOfAllFlowsIsBetterThanHashing) {
  const FabricSimSpec spec{.ports = 8, .steer = false};
  const FabricSimResult r = SimulateFabric(spec, LinksOf(1));
  EXPECT_GT(r.central.mean, 1.3 * r.hashed.mean);
  EXPECT_GT(r.central.least, r.hashed.least);
}

// Where there is room, hosts that see only their own paths find it, and then stay.
TEST(FabricSim, AHalfFullFabricConvergesWithoutHerding) {
  for (const uint64_t seed : {1, 2, 3}) {
    const FabricSimSpec spec{.ports = 8, .flows_per_nic = 4, .sending = 0.5, .seconds = 3, .seed = seed};
    const FabricSimResult r = SimulateFabric(spec, LinksOf(4));
    EXPECT_LT(r.windows.front().rates.mean, 0.99) << seed;
    EXPECT_GE(r.windows.back().rates.mean, 0.98) << seed;
    EXPECT_GT(r.windows.back().rates.least, r.hashed.least) << seed;
    const double reached_s = r.ReachedS(0.95);
    EXPECT_TRUE(reached_s >= 0 && reached_s < 1) << seed << ": " << reached_s;
    const WindowResult late = r.Sum(2, 4);
    EXPECT_LT(late.moves, 0.1 * r.flows) << seed;
    EXPECT_LE(r.Sum(0, 4).herd, 6) << seed;
  }
}

// A round of all peers' paths, and four rounds more of which half of the budget is for pairs in doubt.
double Bound(const RecoveryResult& r, const RecoverySpec& spec) {
  const double probes = (spec.liveness.misses + 1) * (spec.active_peers + spec.idle_peers) * spec.slots;
  return 2 * r.active_interval_s + 0.01 + 2 * probes / (0.5 * static_cast<double>(spec.probe.budget_pps));
}

TEST(RecoverySim, EveryPairTellsWithinWhatTheBudgetAllows) {
  double fewer_s = 0;
  for (const int peers : {1, 8, 64}) {
    const RecoverySpec spec{.active_peers = peers, .idle_peers = 16, .cuts = 5};
    const RecoveryResult r = SimulateRecovery(spec);
    EXPECT_EQ(r.missed, 0) << peers;
    EXPECT_EQ(r.wrong, 0) << peers;
    EXPECT_EQ(r.active.n, 5 * peers);
    EXPECT_EQ(r.idle.n, 5 * 16);
    EXPECT_LE(r.probes_per_s, 1.05 * static_cast<double>(spec.probe.budget_pps)) << peers;
    EXPECT_LE(r.active.most_s, Bound(r, spec)) << peers;
    EXPECT_GT(r.active.p50_s, fewer_s) << peers << ": the budget is shared";
    fewer_s = r.active.p50_s;
  }
}

TEST(RecoverySim, ALonePairInDoubtDoesNotWaitForTheOthers) {
  const RecoverySpec lone{.active_peers = 64, .idle_peers = 16, .lone = true, .cuts = 40};
  const RecoveryResult r = SimulateRecovery(lone);
  EXPECT_EQ(r.active.n, 40);
  EXPECT_EQ(r.idle.n, 0);
  // Until its next round, and then four of its own from half of the budget, with as much to spare.
  EXPECT_LE(r.active.most_s, r.active_interval_s + 8 * 12 / 5e3 + 0.01);
}

TEST(RecoverySim, ASmallHostNeedsNoMoreThanItsRounds) {
  const RecoverySpec spec{.active_peers = 1, .idle_peers = 0, .slots = 4, .cuts = 50};
  const RecoveryResult r = SimulateRecovery(spec);
  EXPECT_GE(r.active.p50_s, 3 * 400e-6) << "three rounds, at least";
  EXPECT_LE(r.active.most_s, 8 * r.active_interval_s);
}

TEST(DiscoverySim, PathsToManyPeersAreFoundWithinTheBudgetAndAJobsFirst) {
  const DiscoverySpec spec{.peers = 400, .job_peers = 16, .spines = 8, .lost = 0.02};
  const DiscoveryResult r = SimulateDiscovery(spec);
  EXPECT_GT(r.all_s, 0) << "some pair has no table after hours";
  EXPECT_LT(r.all_s, 10 * 400 * 3.3) << "ten times what pairs take that share what they learn";
  EXPECT_LT(r.job_s, r.all_s / 4) << "the job's peers do not wait for all";
  EXPECT_LE(r.most_per_switch_s, spec.monitor.per_switch_pps + 1);
  EXPECT_LE(r.missed, 0.02 * 400 * 8);
  EXPECT_LT(r.kept_cpu_share, 0.01);
}

}  // namespace
}  // namespace cw::sim
