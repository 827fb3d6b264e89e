// SPDX-License-Identifier: Apache-2.0
//
// What the switches of a fabric choose a path by, told from traces.
#include <gtest/gtest.h>

#include "tests/unit/probe_traced_fabric.h"

namespace cw::probe {
namespace {

Hashing Tested(TracedFabric f, uint64_t seed) {
  f.salt = static_cast<uint32_t>(seed * 7919);
  f.random.seed(seed);
  Discovery d({.seed = seed}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  EXPECT_EQ(Count(d.TakeEvents(), DiscoveryEvent::Kind::kHashing), d.hashing() == Hashing::kUnknown ? 0 : 1);
  return d.hashing();
}

TEST(SelfTest, TellsWhatSwitchesHashOn) {
  int missed_paths = 0, missed_spraying = 0, missed_ttl = 0, missed_qpn = 0;
  for (int spines : {2, 3, 4, 8}) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      missed_paths += Tested({.spines = spines}, seed) != Hashing::kPorts;
      EXPECT_EQ(Hashing::kSinglePath, Tested({.spines = spines, .hash = TracedFabric::kAddresses}, seed));
      missed_ttl += Tested({.spines = spines, .hash = TracedFabric::kTtl}, seed) != Hashing::kTtl;
      for (auto hash : {TracedFabric::kQpn, TracedFabric::kQpnOnly})
        if (seed <= 8) missed_qpn += Tested({.spines = spines, .hash = hash}, seed) != Hashing::kQpn;
      missed_spraying += Tested({.spines = spines, .hash = TracedFabric::kSpray}, seed) != Hashing::kSprayed;
    }
  }
  EXPECT_LE(missed_paths, 2) << "all ports on one path, by chance";
  EXPECT_LE(missed_ttl, 3);
  EXPECT_LE(missed_spraying, 3);
  EXPECT_LE(missed_qpn, 2) << "of 64";
}

TEST(SelfTest, LostAnswersAndSilentSwitchesMakeNoSpraying) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Hashing::kPorts, Tested({.spines = 4, .lost = 0.2}, seed));
    EXPECT_EQ(Hashing::kQpn,
              Tested({.spines = 4, .leaves_silent = true, .hash = TracedFabric::kQpn, .lost = 0.2}, seed));
    EXPECT_EQ(Hashing::kPorts, Tested({.spines = 4, .leaves_silent = true}, seed));
    EXPECT_EQ(Hashing::kUnknown, Tested({.spines = 2, .silent_spines = {0, 1}, .leaves_silent = true}, seed));
  }
}

TEST(SelfTest, OneChangeOfRoutesIsNeitherSprayingNorTtl) {
  for (int64_t at = 100 * kMs; at < 3 * kSecond; at += 100 * kMs) {
    TracedFabric f{.spines = 4};
    Discovery d({.seed = 5}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, at, /*pps=*/20);
    f.salt = 2;
    SimulateDiscovery(d, f, now, 100 * kSecond, /*pps=*/20);
    EXPECT_EQ(Hashing::kPorts, d.hashing()) << at;
    EXPECT_TRUE(d.table().valid);
    EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
  }
}

TEST(SelfTest, AFabricThatStopsSprayingIsFoundAgain) {
  TracedFabric f{.spines = 4, .hash = TracedFabric::kSpray};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Hashing::kSprayed, d.hashing());
  std::vector<DiscoveryEvent> events = d.TakeEvents();
  EXPECT_EQ(0, Count(events, DiscoveryEvent::Kind::kInvalid)) << "what changes each time is not told each time";
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kHashing));
  f.hash = TracedFabric::kPorts;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  EXPECT_EQ(Hashing::kPorts, d.hashing());
  EXPECT_EQ(4u, d.table().paths.size());
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
  // And the other way: the hops of a path differ, the table is built anew, and its test fails.
  f.hash = TracedFabric::kSpray;
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Hashing::kSprayed, d.hashing());
}

// Switches that answer from one address each, whichever port the packet came in by.
TEST(SelfTest, LoopbackAddressesOfTheFarLeafAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 40; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, 0)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[2] = address(3, port % 4);
  EXPECT_FALSE(TracesContradict(traced)) << "each port of the far leaf behind its own spine";
  for (auto& [port, hops] : traced) hops[2] = address(3, port / 4 % 4);
  EXPECT_TRUE(TracesContradict(traced));
}

// Four aggregation switches that each lead to all of four cores; each switch answers from one address. (With addresses
// of ports, the far leaf would show four.)
TEST(SelfTest, SwitchesWithOneAddressEachAndPathsThatMeetAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 64; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, port / 4 % 4),
                                           address(4, port / 16), address(5, 0)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[4] = address(5, port % 4);  // the far leaf's four ports
  EXPECT_TRUE(TracesContradict(traced)) << "a port of a core with four switches in front of it";
}

// Leaf, four aggregation switches, four cores behind each, and again four aggregation switches that each core leads to.
TEST(SelfTest, PathsThatMeetAgainInThreeTiersAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 64; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, port % 16),
                                           address(4, port / 16)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[2] = address(3, port / 4);  // a core does not belong to one aggregation switch
  EXPECT_TRUE(TracesContradict(traced));
}

}  // namespace
}  // namespace cw::probe
