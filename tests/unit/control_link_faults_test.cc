// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/link_faults.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cw::control {
namespace {

constexpr int kSpines = 4, kPeers = 6;  // two peers on each of three leaves

uint64_t FaultUp(int spine) { return 100 + static_cast<uint64_t>(spine); }
uint64_t FaultDown(int spine, int leaf) { return 1000 + static_cast<uint64_t>(10 * spine + leaf); }
uint64_t Edge(int peer) { return 5000 + static_cast<uint64_t>(peer); }
constexpr uint64_t kOwn = 1;

std::vector<PathHealth> With(const std::set<uint64_t>& dead_links) {
  std::vector<PathHealth> paths;
  for (int peer = 0; peer < kPeers; ++peer) {
    for (int spine = 0; spine < kSpines; ++spine) {
      PathHealth path{false, {kOwn, FaultUp(spine), FaultDown(spine, peer / 2), Edge(peer)}};
      for (const uint64_t link : path.links) path.dead |= dead_links.contains(link);
      paths.push_back(path);
    }
  }
  return paths;
}

std::vector<uint64_t> OnlyFault(const std::set<uint64_t>& dead_links) {
  const LinkFaults found = FindLinkFaults(With(dead_links));
  EXPECT_TRUE(found.unexplained.empty());
  EXPECT_EQ(1u, found.faults.size());
  return found.faults.empty() ? std::vector<uint64_t>() : found.faults[0].links;
}

TEST(LinkFaults, ALinkOfEachTierIsNamed) {
  EXPECT_TRUE(FindLinkFaults(With({})).faults.empty());
  EXPECT_EQ((std::vector<uint64_t>{FaultUp(2)}), OnlyFault({FaultUp(2)}));
  EXPECT_EQ((std::vector<uint64_t>{FaultDown(1, 2)}), OnlyFault({FaultDown(1, 2)}));
  EXPECT_EQ((std::vector<uint64_t>{Edge(3)}), OnlyFault({Edge(3)}));
  EXPECT_EQ((std::vector<uint64_t>{kOwn}), OnlyFault({kOwn})) << "all paths are dead: one link explains them";
}

TEST(LinkFaults, SeveralAtOnce) {
  const LinkFaults found = FindLinkFaults(With({FaultUp(0), Edge(5), FaultDown(3, 0)}));
  ASSERT_EQ(3u, found.faults.size());
  EXPECT_EQ((std::vector<uint64_t>{FaultUp(0)}), found.faults[0].links);
  EXPECT_EQ(6u, found.faults[0].paths.size());
  EXPECT_EQ((std::vector<uint64_t>{Edge(5)}), found.faults[1].links);
  EXPECT_EQ(3u, found.faults[1].paths.size()) << "the fourth is explained by the uplink";
  EXPECT_EQ((std::vector<uint64_t>{FaultDown(3, 0)}), found.faults[2].links);
}

TEST(LinkFaults, WhatCannotBeToldApartIsOneFault) {
  const std::vector<PathHealth> one_peer = {{true, {1, 11}}, {false, {2, 12}}};
  const LinkFaults found = FindLinkFaults(one_peer);
  ASSERT_EQ(1u, found.faults.size());
  EXPECT_EQ((std::vector<uint64_t>{1, 11}), found.faults[0].links);
  EXPECT_EQ((std::vector<size_t>{0}), found.faults[0].paths);
}

TEST(LinkFaults, ADeadPathOverLivingLinksIsNoLinksFault) {
  // For example: one direction of one flow's hash, or a list of hops that is out of date.
  const std::vector<PathHealth> paths = {{true, {1, 11}}, {false, {1, 12}}, {false, {2, 11}}, {true, {}}};
  const LinkFaults found = FindLinkFaults(paths);
  EXPECT_TRUE(found.faults.empty());
  EXPECT_EQ((std::vector<size_t>{0}), found.unexplained);
}

}  // namespace
}  // namespace cw::control
