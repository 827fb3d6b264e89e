// SPDX-License-Identifier: Apache-2.0
#include "sync/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>

#include "sync/neighbours.h"

namespace cw::sync {
namespace {

struct Truth {
  std::vector<double> offset_ns, slope_ppb;
  std::vector<MeshLink> links;
};

Truth Make(size_t nodes, double noise_ns, uint64_t seed, double offset_ns = 1e9) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> symmetric(-1, 1);
  Truth t;
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < nodes; ++i) {
    ids.push_back(i + 1);
    t.offset_ns.push_back(offset_ns * symmetric(random));
    t.slope_ppb.push_back(1e5 * symmetric(random));
  }
  const auto neighbours = ChooseAllNeighbours(ids, seed);
  for (uint32_t i = 0; i < nodes; ++i) {
    for (const size_t j : neighbours[i]) {
      if (j < i) continue;
      const auto b = static_cast<uint32_t>(j);
      t.links.push_back({i, b, t.offset_ns[b] - t.offset_ns[i] + noise_ns * normal(random),
                         t.slope_ppb[b] - t.slope_ppb[i] + normal(random), noise_ns, 1});
    }
  }
  return t;
}

// Root mean square of the nodes' errors, each component by its own mean.
double Error(const MeshResult& r, const std::vector<double>& truth, const std::vector<double>& found) {
  std::vector<double> sum(r.components, 0), n(r.components, 0);
  for (size_t i = 0; i < truth.size(); ++i) sum[r.component[i]] += found[i] - truth[i], n[r.component[i]] += 1;
  double squares = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double e = found[i] - truth[i] - sum[r.component[i]] / n[r.component[i]];
    squares += e * e;
  }
  return std::sqrt(squares / static_cast<double>(truth.size()));
}

TEST(Mesh, TheTriangleOfThePaper) {
  // 20 − 15 + 5 leave 10 around the loop, spread evenly.
  const MeshResult r = SolveMesh(3, {{0, 1, 20, 0, 1, 1}, {1, 2, -15, 0, 1, 1}, {2, 0, 5, 0, 1, 1}});
  EXPECT_NEAR(r.offset_ns[1] - r.offset_ns[0], 16.667, 0.001);
  EXPECT_NEAR(r.offset_ns[2] - r.offset_ns[1], -18.333, 0.001);
  EXPECT_NEAR(r.offset_ns[0] - r.offset_ns[2], 1.667, 0.001);
  for (const MeshLinkVerdict& v : r.links) EXPECT_NEAR(v.residual_ns, 3.333, 0.001);
}

TEST(Mesh, ErrorsOfLinksAverageOut) {
  const Truth t = Make(1000, 50, 3);
  const MeshResult r = SolveMesh(1000, t.links);
  EXPECT_EQ(r.components, 1u);
  // A node of ten links is known to 0.34 of a link's error: 0.475 for two nodes.
  EXPECT_LT(Error(r, t.offset_ns, r.offset_ns), 0.40 * 50);
  EXPECT_LT(Error(r, t.slope_ppb, r.slope_ppb), 0.40);
  EXPECT_NEAR(r.scatter, 1, 0.1);
  EXPECT_LE(r.suspects.size(), 1u);
}

TEST(Mesh, WrongLinksAreNamedAndHardlyMatter) {
  Truth t = Make(300, 30, 5);
  std::mt19937_64 random(2);
  std::set<size_t> wrong;
  while (wrong.size() < t.links.size() / 20) wrong.insert(random() % t.links.size());
  for (const size_t k : wrong) t.links[k].offset_ns += k % 2 ? 800 : -2500;
  const MeshResult r = SolveMesh(300, t.links);
  EXPECT_EQ(std::set<size_t>(r.suspects.begin(), r.suspects.end()), wrong);
  EXPECT_LT(Error(r, t.offset_ns, r.offset_ns), 0.5 * 30);
  EXPECT_TRUE(r.suspect_nodes.empty());
  for (const size_t k : wrong) EXPECT_LT(r.links[k].weight, 0.3);
  // Worst first.
  EXPECT_GE(r.links[r.suspects.front()].deviations, r.links[r.suspects.back()].deviations);
}

TEST(Mesh, AHostThatTellsEachNeighbourAnotherTimeIsNamed) {
  Truth t = Make(200, 30, 6);
  int k = 0;
  for (MeshLink& l : t.links) {
    if (l.a == 17 || l.b == 17) l.offset_ns += (k++ % 2 ? 5000 : -5000);
  }
  const MeshResult r = SolveMesh(200, t.links);
  EXPECT_EQ(r.suspect_nodes, std::vector<uint32_t>{17});
}

TEST(Mesh, PartsThatAreApartAreSolvedEachForItself) {
  Truth t = Make(60, 20, 7);
  const Truth other = Make(40, 20, 8);
  for (MeshLink l : other.links) {
    l.a += 60, l.b += 60;
    t.links.push_back(l);
  }
  t.offset_ns.insert(t.offset_ns.end(), other.offset_ns.begin(), other.offset_ns.end());
  t.offset_ns.push_back(0);  // a node without links
  const MeshResult r = SolveMesh(101, t.links);
  EXPECT_EQ(r.components, 3u);
  EXPECT_EQ(r.component[0], 0u);
  EXPECT_EQ(r.component[60], 1u);
  EXPECT_EQ(r.component[100], 2u);
  EXPECT_LT(Error(r, t.offset_ns, r.offset_ns), 20 * 0.5);
}

TEST(Mesh, NonsenseIsIgnored) {
  EXPECT_EQ(SolveMesh(0, {}).components, 0u);
  const MeshResult r = SolveMesh(3, {{0, 9, 5, 0, 1, 1}, {0, 0, 5, 0, 1, 1}, {0, 1, NAN, 0, 1, 1}, {1, 2, 7, 0, 0, 1}});
  EXPECT_EQ(r.components, 3u);
  for (const MeshLinkVerdict& v : r.links) EXPECT_EQ(v.weight, 0);
  for (const double x : r.offset_ns) EXPECT_EQ(x, 0);
}

TEST(Mesh, AHundredThousandNodes) {
  Truth t = Make(100'000, 50, 9);
  const auto before = std::chrono::steady_clock::now();
  const MeshResult r = SolveMesh(100'000, t.links);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  std::printf("%zu links: %.2f s, error %.3f of a link's\n", t.links.size(), seconds,
              Error(r, t.offset_ns, r.offset_ns) / 50);
  EXPECT_LT(Error(r, t.offset_ns, r.offset_ns), 0.30 * 50);
}

}  // namespace
}  // namespace cw::sync
