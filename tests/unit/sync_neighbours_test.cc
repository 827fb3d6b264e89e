// SPDX-License-Identifier: Apache-2.0
#include "sync/neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>

namespace cw::sync {
namespace {

std::vector<uint64_t> Members(size_t n) {
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(HostId("host-" + std::to_string(i)));
  return ids;
}

using Graph = std::vector<std::vector<size_t>>;

size_t Reached(const Graph& g) {
  std::vector<bool> seen(g.size(), false);
  std::vector<size_t> queue = {0};
  seen[0] = true;
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const size_t j : g[queue[head]]) {
      if (!seen[j]) seen[j] = true, queue.push_back(j);
    }
  }
  return queue.size();
}

// The second largest eigenvalue of the random walk, by power iteration on what is orthogonal to the first.
double SecondEigenvalue(const Graph& g) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> x(g.size()), y(g.size());
  for (double& v : x) v = normal(random);
  double length = 1;
  for (int k = 0; k < 60; ++k) {
    // Stationary weight of a node is its degree.
    double sum = 0, weight = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      sum += x[i] * static_cast<double>(g[i].size());
      weight += static_cast<double>(g[i].size());
    }
    for (double& v : x) v -= sum / weight;
    length = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      y[i] = 0;
      for (const size_t j : g[i]) y[i] += x[j];
      y[i] /= static_cast<double>(g[i].size());
      length += y[i] * y[i];
    }
    length = std::sqrt(length);
    for (size_t i = 0; i < g.size(); ++i) x[i] = y[i] / length;
  }
  return length;
}

TEST(Neighbours, DegreeConnectionAndExpansionForAllSizes) {
  for (const size_t n : {2, 3, 5, 9, 13, 17, 18, 24, 64, 100, 300, 1000, 10'000, 100'000}) {
    const Graph g = ChooseAllNeighbours(Members(n), 7);
    const size_t degree = std::min<size_t>(n - 1, n <= 17 ? 16 : static_cast<size_t>(NeighbourDegree(n)));
    size_t least = n, most = 0;
    for (size_t i = 0; i < n; ++i) {
      least = std::min(least, g[i].size());
      most = std::max(most, g[i].size());
      for (const size_t j : g[i]) {
        ASSERT_NE(i, j);
        ASSERT_TRUE(std::binary_search(g[j].begin(), g[j].end(), i)) << "links are mutual";
      }
    }
    const double second = n > 3 ? SecondEigenvalue(g) : 0;
    // A random regular graph's is 2√(d−1)/d.
    const double ideal = 2 * std::sqrt(static_cast<double>(degree) - 1) / static_cast<double>(degree);
    std::printf("N %zu: degree %zu to %zu, second eigenvalue %.3f (random regular graph %.3f)\n", n, least, most,
                second, ideal);
    EXPECT_LE(most, degree + (n < 40 ? 4 : n < 128 ? 2 : 0));
    EXPECT_GE(least + 2, degree);  // rings may share links
    EXPECT_EQ(Reached(g), n);
    EXPECT_LT(second, ideal + 0.1);
  }
  EXPECT_EQ(NeighbourDegree(100), 8);
  EXPECT_EQ(NeighbourDegree(100'000), 18);
}

TEST(Neighbours, EveryHostFindsTheSame) {
  std::vector<uint64_t> members = Members(500);
  const Graph all = ChooseAllNeighbours(members, 3);
  for (size_t i = 0; i < members.size(); i += 37) EXPECT_EQ(ChooseNeighbours(members, i, 3), all[i]);
  // The order in which a host lists the members does not matter.
  std::vector<size_t> order(members.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
  std::vector<uint64_t> shuffled;
  for (const size_t i : order) shuffled.push_back(members[i]);
  std::set<uint64_t> found, expected;
  for (const size_t j : ChooseNeighbours(shuffled, 11, 3)) found.insert(shuffled[j]);
  for (const size_t j : all[order[11]]) expected.insert(members[j]);
  EXPECT_EQ(found, expected);
  EXPECT_NE(ChooseNeighbours(members, 0, 4), all[0]) << "another seed, another graph";
}

std::set<std::pair<uint64_t, uint64_t>> Links(const std::vector<uint64_t>& members, const Graph& g) {
  std::set<std::pair<uint64_t, uint64_t>> links;
  for (size_t i = 0; i < g.size(); ++i) {
    for (const size_t j : g[i]) links.insert(std::minmax(members[i], members[j]));
  }
  return links;
}

TEST(Neighbours, AJoinChangesOnlyTheLinksOfTheNewcomersPlaces) {
  std::vector<uint64_t> members = Members(2000);
  const auto before = Links(members, ChooseAllNeighbours(members, 9));
  for (int k = 0; k < 20; ++k) {
    std::vector<uint64_t> more = members;
    more.push_back(HostId("newcomer-" + std::to_string(k)));
    const auto after = Links(more, ChooseAllNeighbours(more, 9));
    std::vector<std::pair<uint64_t, uint64_t>> changed;
    std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                  std::back_inserter(changed));
    // Per ring: two new links and one that is cut.
    EXPECT_LE(changed.size(), 3u * static_cast<size_t>(NeighbourDegree(2001)) / 2);
  }
}

TEST(Neighbours, SmallFleetsCompareAllWithAll) {
  for (const size_t n : {1, 2, 5, 9, 17}) {
    const Graph g = ChooseAllNeighbours(Members(n), 1);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(g[i].size(), n - 1);
  }
}

TEST(Neighbours, IdsAreNeverZeroAndLabelsAreFixed) {
  EXPECT_NE(HostId(""), 0u);
  EXPECT_NE(HostId("a"), HostId("b"));
  EXPECT_EQ(HostLabel(0xab), "#00000000000000ab");
}

}  // namespace
}  // namespace cw::sync
