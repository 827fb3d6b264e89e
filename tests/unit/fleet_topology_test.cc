// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "tests/unit/fleet_fabric.h"
#include "userspace/fleet/topology/wiring.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Every set of addresses is one switch of the fabric, whole; tiers are 1, 2, 3.
void ExpectTheFabric(const Topology& topology, const Fabric& fabric, const std::map<int, int>& per_tier) {
  EXPECT_EQ(topology.switches.size(), fabric.switches());
  std::map<int, int> tiers;
  for (const Switch& s : topology.switches) ++tiers[s.tier];
  EXPECT_EQ(tiers, per_tier);
  const FleetFile plan = fabric.Plan();
  for (const PlannedSwitch& s : plan.switches) {
    std::set<int> found;
    for (const Addr& a : s.addresses) {
      const auto it = topology.switch_of.find(a);
      if (it != topology.switch_of.end()) found.insert(it->second);
    }
    EXPECT_EQ(found.size(), 1u) << s.name;
  }
}

TEST(Topology, TwoTiersWithoutAWordFromPeople) {
  const Fabric fabric({.leaves = 5, .spines = 3, .nics = 2});
  const Topology topology = BuildTopology(fabric.Traces(), {});
  ExpectTheFabric(topology, fabric, {{1, 5}, {2, 3}});
  // Cables: 15 between switches and 10 of NICs, both directions.
  EXPECT_THAT(topology.links, SizeIs(2 * (15 + 10)));
  EXPECT_EQ(topology.silent_hops, 0u);
  EXPECT_THAT(topology.conflicts, IsEmpty());
}

TEST(Topology, ThreeTiers) {
  const Fabric fabric({.pods = 3, .leaves = 3, .spines = 2, .cores_of_spine = 2, .nics = 1});
  ExpectTheFabric(BuildTopology(fabric.Traces(), {}), fabric, {{1, 9}, {2, 6}, {3, 4}});
}

TEST(Topology, ManyShapes) {
  for (const int pods : {1, 3, 4}) {
    for (const int leaves : {3, 4, 6}) {
      for (const int spines : {1, 2, 4}) {
        const Fabric fabric({.pods = pods, .leaves = leaves, .spines = spines, .cores_of_spine = 1, .nics = 1});
        std::map<int, int> tiers = {{1, pods * leaves}, {2, pods * spines}};
        if (pods > 1) tiers[3] = spines;
        ExpectTheFabric(BuildTopology(fabric.Traces(), {}), fabric, tiers);
      }
    }
  }
}

// Between two leaves a spine's two ports are never seen before the same one: traces alone cannot tell that they are
// one.
TEST(Topology, BetweenTwoOnlyTheFileJoinsAndNothingIsJoinedWrongly) {
  for (const int pods : {1, 2}) {
    const Fabric fabric({.pods = pods, .leaves = 2, .spines = 2, .cores_of_spine = 1, .nics = 2});
    const FleetFile plan = fabric.Plan();
    std::map<Addr, std::string> truth;
    for (const PlannedSwitch& s : plan.switches) {
      for (const Addr& a : s.addresses) truth[a] = s.name;
    }
    const Topology topology = BuildTopology(fabric.Traces(), {});
    EXPECT_GT(topology.switches.size(), fabric.switches());
    for (const Switch& s : topology.switches) {
      for (const Addr& a : s.addresses) EXPECT_EQ(truth.at(a), truth.at(s.addresses[0]));
    }
    EXPECT_EQ(BuildTopology(fabric.Traces(), plan).switches.size(), fabric.switches());
  }
}

TEST(Topology, SwitchesThatAnswerWithOneAddressOfTheirOwnAreNotMixedUp) {
  for (const int pods : {1, 3}) {
    const Fabric fabric(
        {.pods = pods, .leaves = 4, .spines = 2, .cores_of_spine = 2, .nics = 2, .own_addresses = true});
    const Topology topology = BuildTopology(fabric.Traces(), {});
    EXPECT_EQ(topology.switches.size(), fabric.switches());
    for (const Switch& s : topology.switches) EXPECT_THAT(s.addresses, SizeIs(1));
  }
}

// Traces of one NIC that let all ports where leaves hear of a spine look like addresses of their own.
std::vector<Trace> MadeUp(const Fabric& fabric, int leaves, int spine, size_t liar) {
  std::vector<Trace> traces;
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const Addr port = fabric.PortTo(leaf, spine), before = fabric.PortTo(spine, (leaf + 1) % leaves);
    traces.push_back({.source = fabric.nic(liar),
                      .destination = fabric.nic(1),
                      .hops = {fabric.PortTo(0, spine), port, before, {}}});  // where it ends is not said
  }
  return traces;
}

TEST(Topology, AHostAloneSplitsASwitchOnlyWhereThatDoesNoHarm) {
  const Fabric fabric({.leaves = 4, .spines = 2, .nics = 2});
  std::vector<Trace> traces = fabric.Traces();
  const auto ports_together = [&](Split split) {
    const Topology topology = BuildTopology(traces, {}, split);
    std::set<int> of;
    for (int leaf = 0; leaf < 4; ++leaf) of.insert(topology.switch_of.at(fabric.PortTo(fabric.spine(0, 0), leaf)));
    return of.size() == 1;
  };
  EXPECT_TRUE(ports_together(Split::kByOne));
  for (const Trace& trace : MadeUp(fabric, 4, fabric.spine(0, 0), 0)) traces.push_back(trace);
  EXPECT_FALSE(ports_together(Split::kByOne)) << "the lie is one";
  EXPECT_TRUE(ports_together(Split::kBySeveral));
  for (const Trace& trace : MadeUp(fabric, 4, fabric.spine(0, 0), 3)) traces.push_back(trace);
  EXPECT_FALSE(ports_together(Split::kBySeveral)) << "two hosts are believed";
}

TEST(Topology, AddressesOfTheirOwnAreKnownBySeveralHosts) {
  for (const int pods : {1, 3}) {
    const Fabric fabric(
        {.pods = pods, .leaves = 4, .spines = 2, .cores_of_spine = 2, .nics = 2, .own_addresses = true});
    const Topology topology = BuildTopology(fabric.Traces(), {}, Split::kBySeveral);
    EXPECT_EQ(topology.switches.size(), fabric.switches());
  }
  const Fabric small({.leaves = 3, .spines = 1, .nics = 1, .own_addresses = true});
  EXPECT_EQ(BuildTopology(small.Traces(), {}, Split::kBySeveral).switches.size(), small.switches());
}

TEST(Topology, TheOrderOfTracesDoesNotMatter) {
  const Fabric fabric({.pods = 2, .leaves = 3, .spines = 2, .nics = 1});
  std::vector<Trace> traces = fabric.Traces();
  const Topology first = BuildTopology(traces, {});
  std::mt19937_64 random(3);
  std::shuffle(traces.begin(), traces.end(), random);
  const Topology second = BuildTopology(traces, {});
  EXPECT_EQ(first.switch_of, second.switch_of);
  EXPECT_EQ(first.links.size(), second.links.size());
}

TEST(Topology, SilentHopsJoinNothingWrongAndAreCounted) {
  const Fabric fabric({.leaves = 4, .spines = 3, .nics = 2});
  std::vector<Trace> traces = fabric.Traces();
  const FleetFile plan = fabric.Plan();
  std::mt19937_64 random(5);
  uint64_t silent = 0;
  for (Trace& trace : traces) {
    for (Addr& hop : trace.hops) {
      if (random() % 3 != 0) continue;
      hop = {};
      ++silent;
    }
  }
  const Topology topology = BuildTopology(traces, {});
  EXPECT_EQ(topology.silent_hops, silent);
  std::map<Addr, std::string> truth;
  for (const PlannedSwitch& s : plan.switches) {
    for (const Addr& a : s.addresses) truth[a] = s.name;
  }
  for (const Switch& s : topology.switches) {
    for (const Addr& a : s.addresses) EXPECT_EQ(truth.at(a), truth.at(s.addresses[0]));
  }
}

TEST(Topology, NamesComeFromTheFileAndALinksIdsJoinOverHosts) {
  const Fabric fabric({.leaves = 3, .spines = 2, .nics = 2});
  FleetFile plan;
  plan.switches = {{.name = "the-leaf",
                    .rack = "r1",
                    .rail = "3",
                    .addresses = {fabric.PortTo(fabric.leaf(0, 1), fabric.spine(0, 0))}}};
  const Topology topology = BuildTopology(fabric.Traces(), plan);
  const Switch& leaf = topology.switches[static_cast<size_t>(topology.leaf_of.at(fabric.nic(2)))];
  EXPECT_EQ(leaf.name, "the-leaf");
  EXPECT_EQ(leaf.rack, "r1");
  EXPECT_EQ(leaf.rail, "3");
  // The spine's link to leaf 1 is entered from two other leaves: two names, one link.
  const Addr port = fabric.PortTo(fabric.leaf(0, 1), fabric.spine(0, 0));
  const auto link =
      std::find_if(topology.links.begin(), topology.links.end(), [&](const TopologyLink& l) { return l.port == port; });
  ASSERT_NE(link, topology.links.end());
  EXPECT_THAT(link->ids, SizeIs(2));
}

TEST(Topology, WhatTheFileTellsApartIsNotJoined) {
  const Fabric fabric({.leaves = 3, .spines = 1, .nics = 1});
  FleetFile plan;
  const int spine = fabric.spine(0, 0);
  plan.switches = {{.name = "x", .addresses = {fabric.PortTo(spine, fabric.leaf(0, 0))}},
                   {.name = "y", .addresses = {fabric.PortTo(spine, fabric.leaf(0, 1))}}};
  const Topology topology = BuildTopology(fabric.Traces(), plan);
  ASSERT_FALSE(topology.conflicts.empty());
  EXPECT_TRUE(absl::StrContains(topology.conflicts[0], "x and y look like one switch"));
}

TEST(Topology, ABondOverTwoSwitchesDoesNotMakeThemOne) {
  const Addr nic = Addr::FromV4(1), other = Addr::FromV4(2), a = Addr::FromV4(10), b = Addr::FromV4(11),
             c = Addr::FromV4(12);
  const Topology topology = BuildTopology(std::vector<Trace>{{nic, other, {a, c}}, {nic, other, {b, c}}}, {});
  EXPECT_FALSE(topology.leaf_of.contains(nic));
}

TEST(Topology, SwitchesThatNoLinkJoinsAreOfDifferentPlanes) {
  const auto at = [](uint32_t n) { return Addr::FromV4(n); };
  std::vector<Trace> traces = {{at(1), at(2), {at(11), at(12), at(13)}}, {at(3), at(4), {at(21), at(22)}}};
  Topology topology = BuildTopology(traces, {});
  const auto plane = [&](uint32_t n) {
    return topology.switches[static_cast<size_t>(topology.switch_of.at(at(n)))].plane;
  };
  EXPECT_EQ(plane(11), 1);
  EXPECT_EQ(plane(13), 1);
  EXPECT_EQ(plane(21), 2);
  EXPECT_EQ(plane(22), 2);
  traces.push_back({at(1), at(3), {at(11), at(21)}});
  topology = BuildTopology(traces, {});
  EXPECT_EQ(plane(11), 0) << "there is but one";
  traces.back() = {at(1), at(3), {at(11), Addr{}, at(21)}};
  topology = BuildTopology(traces, {});
  EXPECT_EQ(plane(11), 0) << "a way through what did not answer is a way";
  EXPECT_EQ(plane(22), 0);
}

TEST(Topology, NoTraceNoFabric) {
  const Topology topology = BuildTopology({}, {});
  EXPECT_THAT(topology.switches, IsEmpty());
  EXPECT_THAT(CompareWiring(topology, Fabric({}).Plan()).faults, IsEmpty());
}

TEST(Wiring, AsPlannedIsNoFault) {
  const Fabric fabric({.pods = 2, .leaves = 3, .spines = 2, .nics = 2});
  const FleetFile plan = fabric.Plan();
  const WiringReport report = CompareWiring(BuildTopology(fabric.Traces(), plan), plan);
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_EQ(report.not_seen, 0u);
  EXPECT_EQ(report.right, plan.cables.size() + plan.nics.size());
}

TEST(Wiring, TwoSwappedCablesAreOneSwap) {
  for (const int pods : {1, 2}) {
    Fabric fabric({.pods = pods, .leaves = 4, .spines = 2, .nics = 2});
    const FleetFile plan = fabric.Plan();
    const int a = fabric.leaf(0, 1), b = fabric.leaf(0, 3), spine = fabric.spine(0, 1);
    fabric.SwapCables(a, b, spine);
    const Topology topology = BuildTopology(fabric.Traces(), plan);
    EXPECT_THAT(topology.conflicts, IsEmpty());
    const WiringReport report = CompareWiring(topology, plan);
    ASSERT_THAT(report.faults, SizeIs(1));
    EXPECT_EQ(report.faults[0].kind, Miswiring::Kind::kSwappedCables);
    std::vector<std::string> planned = report.faults[0].planned;
    std::sort(planned.begin(), planned.end());
    EXPECT_THAT(planned, ElementsAre(fabric.name(a), fabric.name(b)));
    EXPECT_TRUE(absl::StrContains(report.faults[0].text, "are swapped: exchange them")) << report.faults[0].text;
  }
}

TEST(Wiring, TwoSwappedNicsAreOneSwapAndAWrongOneIsNamed) {
  Fabric fabric({.leaves = 3, .spines = 2, .nics = 2});
  const FleetFile plan = fabric.Plan();
  fabric.SwapNics(0, 4);
  WiringReport report = CompareWiring(BuildTopology(fabric.Traces(), plan), plan);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, Miswiring::Kind::kSwappedNics);
  EXPECT_THAT(report.faults[0].ends, ElementsAre(fabric.nic(0), fabric.nic(4)));
  FleetFile other = plan;
  for (PlannedNic& nic : other.nics) {
    if (nic.address == fabric.nic(0)) nic.leaf = fabric.name(fabric.leaf(0, 1));
  }
  report = CompareWiring(BuildTopology(fabric.Traces(), other), other);
  ASSERT_THAT(report.faults, SizeIs(2));  // no longer each in the other's place
  EXPECT_EQ(report.faults[0].kind, Miswiring::Kind::kNic);
}

TEST(FleetFile, IsReadAndItsFaultsAreNamedWithTheirPlace) {
  const absl::StatusOr<FleetFile> good = ReadFleetFile(R"(
[[switch]]
name = "leaf1"
rack = "r1"
addresses = ["10.1.0.1", "10.1.0.3"]
[[switch]]
name = "spine1"
[[cable]]
from = "spine1"
to = "10.1.0.1"
[[nic]]
address = "10.0.0.1"
leaf = "leaf1"
)",
                                                       "fleet.toml");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->switches, SizeIs(2));
  EXPECT_EQ(good->switches[0].addresses[1], *Addr::Parse("10.1.0.3"));
  EXPECT_EQ(good->cables[0].from, "spine1");
  EXPECT_EQ(good->nics[0].leaf, "leaf1");
  const absl::Status bad =
      ReadFleetFile("[[cable]]\nfrom = \"nobody\"\nto = \"10.1.0.1\"\n[[switch]]\nname=\"a\"\nadresses=[]\n", "f.toml")
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(bad));
  EXPECT_TRUE(absl::StrContains(bad.message(), "f.toml:2")) << bad;
  EXPECT_TRUE(absl::StrContains(bad.message(), "did you mean \"addresses\"")) << bad;
  EXPECT_TRUE(ReadFleetFile("", "f.toml").ok());
}

}  // namespace
}  // namespace cw::fleet
