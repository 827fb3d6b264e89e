// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/nic_places.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/fleet_fabric.h"

namespace cw::fleet {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// No set of addresses is of two switches.
void ExpectNothingFused(const Topology& topology, const Fabric& fabric) {
  std::map<Addr, std::string> truth;
  const FleetFile plan = fabric.Plan();
  for (const PlannedSwitch& s : plan.switches) {
    for (const Addr& a : s.addresses) truth[a] = s.name;
  }
  for (const Switch& s : topology.switches) {
    std::set<std::string> names;
    for (const Addr& a : s.addresses) {
      if (truth.contains(a)) names.insert(truth.at(a));
    }
    EXPECT_LE(names.size(), 1u) << ::testing::PrintToString(names);
  }
}

// A fabric that changes under its hosts: each tells every trace again and again, and traces anew when it is told to.
class ChangingFabric {
 public:
  explicit ChangingFabric(const FabricShape& shape) : fabric_(shape) {
    TraceAnew([](const Trace&) { return true; });
  }
  template <typename Which>
  void TraceAnew(Which which) {
    for (const Trace& trace : fabric_.Traces()) {
      if (which(trace)) std::erase_if(told_, [&](const Trace& t) { return IsOf(t, trace.source, trace.destination); });
    }
    for (const Trace& trace : fabric_.Traces()) {
      if (which(trace)) told_.push_back(trace);
    }
  }
  // All but the silent one tell what they know.
  Topology At(int64_t time_ns, NicPlaces& places, Addr silent = {}) {
    for (Trace& trace : told_) {
      if (trace.source != silent) trace.time_ns = time_ns;
    }
    return BuildTopology(told_, {}, places);
  }
  Fabric& fabric() { return fabric_; }

 private:
  static bool IsOf(const Trace& t, const Addr& from, const Addr& to) { return t.source == from && t.destination == to; }
  Fabric fabric_;
  std::vector<Trace> told_;
};

TEST(NicPlaces, AMovedNicJoinsNoLeaves) {
  for (const int nics : {1, 2}) {
    ChangingFabric hosts({.leaves = 4, .spines = 2, .nics = nics});
    Fabric& fabric = hosts.fabric();
    NicPlaces places;
    hosts.At(1000 * kSecond, places);
    const Addr moved = fabric.nic(0);
    fabric.MoveNic(0, fabric.leaf(0, 2));
    hosts.TraceAnew([&](const Trace& t) { return t.source == moved; });
    Topology topology = hosts.At(1010 * kSecond, places);
    ExpectNothingFused(topology, fabric);
    EXPECT_TRUE(topology.leaf_of.contains(moved));
    hosts.TraceAnew([&](const Trace& t) { return t.source == fabric.nic(1) || t.source == moved; });
    ExpectNothingFused(hosts.At(1025 * kSecond, places), fabric);
    hosts.TraceAnew([](const Trace&) { return true; });
    EXPECT_EQ(places.settled_ns(), 1070 * kSecond);
    topology = hosts.At(1071 * kSecond, places);
    ExpectNothingFused(topology, fabric);
    EXPECT_EQ(topology.leaf_of.at(moved), topology.leaf_of.at(fabric.nic(static_cast<size_t>(2 * nics))));
  }
}

TEST(NicPlaces, ExchangedNicsJoinNoLeaves) {
  for (const int nics : {1, 2}) {
    ChangingFabric hosts({.leaves = 4, .spines = 2, .nics = nics});
    Fabric& fabric = hosts.fabric();
    NicPlaces places;
    hosts.At(1000 * kSecond, places);
    const Addr a = fabric.nic(0), b = fabric.nic(fabric.nics() - 1);
    fabric.SwapNics(0, fabric.nics() - 1);
    hosts.TraceAnew([&](const Trace& t) { return t.source == a || t.source == b; });
    ExpectNothingFused(hosts.At(1010 * kSecond, places), fabric);
    hosts.TraceAnew([](const Trace&) { return true; });
    const Topology topology = hosts.At(1071 * kSecond, places);
    ExpectNothingFused(topology, fabric);
    EXPECT_EQ(topology.switches.size(), fabric.switches());
  }
}

// Its last word stays, for hours: it says where it hung itself, and of those that were moved since nothing.
TEST(NicPlaces, WhatADisconnectedHostToldOfAMovedNicDoesNotHold) {
  ChangingFabric hosts({.leaves = 4, .spines = 2, .nics = 2});
  Fabric& fabric = hosts.fabric();
  NicPlaces places;
  hosts.At(1000 * kSecond, places);
  const Addr gone = fabric.nic(5);
  fabric.SwapNics(0, 6);
  hosts.TraceAnew([&](const Trace& t) { return t.source != gone; });
  for (const int64_t s : {1010, 1071, 5000}) {
    const Topology topology = hosts.At(s * kSecond, places, gone);
    ExpectNothingFused(topology, fabric);
    EXPECT_EQ(topology.leaf_of.at(gone), topology.leaf_of.at(fabric.nic(4))) << "where it hung";
    EXPECT_TRUE(s < 1070 || topology.switches.size() == fabric.switches()) << topology.switches.size();
  }
}

TEST(NicPlaces, AnAgentThatStartsAnewWasNotMoved) {
  const Fabric fabric({.leaves = 3, .spines = 2, .nics = 1});
  std::vector<Trace> traces = fabric.Traces();
  NicPlaces places;
  for (Trace& trace : traces) trace.time_ns = 1000 * kSecond;
  places.Learn(traces);
  for (Trace& trace : traces) trace.time_ns = trace.source == fabric.nic(0) ? 3000 * kSecond : 2000 * kSecond;
  places.Learn(traces);
  EXPECT_EQ(places.settled_ns(), 0);
  for (const Trace& trace : traces) EXPECT_TRUE(places.EndHolds(trace) && !places.IsPast(trace));
}

// Without memory: a host's old paths are told beside its new ones.
TEST(NicPlaces, OfTwoOwnWordsTheNewerCounts) {
  const auto at = [](uint32_t n) { return Addr::FromV4(n); };
  const Trace before{at(1), at(2), {at(11), at(12)}, 1000 * kSecond},
      now{at(1), at(2), {at(21), at(22)}, 1100 * kSecond}, stale{at(2), at(1), {at(31), at(13)}, 1050 * kSecond},
      anew{at(2), at(1), {at(31), at(23)}, 1100 * kSecond};
  NicPlaces places;
  places.Learn(std::vector<Trace>{before, now, stale, anew});
  EXPECT_TRUE(places.IsPast(before));
  EXPECT_FALSE(places.IsPast(now));
  EXPECT_FALSE(places.EndHolds(stale));
  EXPECT_TRUE(places.EndHolds(anew));
  const Topology topology = BuildTopology(std::vector<Trace>{before, now, stale, anew}, {});
  EXPECT_EQ(topology.switch_of.at(at(21)), topology.switch_of.at(at(23)));
  EXPECT_NE(topology.switch_of.at(at(21)), topology.switch_of.at(at(13)));
}

}  // namespace
}  // namespace cw::fleet
