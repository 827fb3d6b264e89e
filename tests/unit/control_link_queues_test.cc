// SPDX-License-Identifier: Apache-2.0
// A host's view of leaf-spine fabrics with known queues, against what the fit makes of it.
#include "userspace/control/link_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace cw::control {
namespace {

constexpr int kLeaves = 6, kQueueSpines = 8, kPeersPerLeaf = 3;

uint64_t QueueUp(int spine) { return 100 + static_cast<uint64_t>(spine); }
uint64_t QueueDown(int spine, int leaf) { return 1000 + static_cast<uint64_t>(100 * spine + leaf); }
uint64_t QueueEdge(int leaf, int peer) { return 5000 + static_cast<uint64_t>(100 * leaf + peer); }

// Paths of one host of leaf 0 to the hosts of all other leaves.
std::vector<PathQueue> Observe(const std::map<uint64_t, double>& queues, double error_ns, std::mt19937& random) {
  std::normal_distribution<double> noise(0, error_ns);
  std::vector<PathQueue> paths;
  for (int leaf = 1; leaf < kLeaves; ++leaf) {
    for (int peer = 0; peer < kPeersPerLeaf; ++peer) {
      for (int spine = 0; spine < kQueueSpines; ++spine) {
        PathQueue path{noise(random), error_ns, {QueueUp(spine), QueueDown(spine, leaf), QueueEdge(leaf, peer)}};
        for (const uint64_t link : path.links) {
          if (const auto queue = queues.find(link); queue != queues.end()) path.queue_ns += queue->second;
        }
        paths.push_back(path);
      }
    }
  }
  return paths;
}

const LinkQueue* Find(const std::vector<LinkQueue>& found, uint64_t link) {
  for (const LinkQueue& queue : found) {
    if (std::find(queue.links.begin(), queue.links.end(), link) != queue.links.end()) return &queue;
  }
  return nullptr;
}

TEST(LinkQueues, SumsAreTakenApart) {
  std::mt19937 random(1);
  const std::map<uint64_t, double> queues = {{QueueUp(2), 300e3}, {QueueDown(2, 4), 200e3}, {QueueEdge(3, 1), 500e3}};
  const std::vector<LinkQueue> found = FitLinkQueues(Observe(queues, 10e3, random));
  ASSERT_EQ(static_cast<size_t>(kQueueSpines + kQueueSpines * (kLeaves - 1) + (kLeaves - 1) * kPeersPerLeaf),
            found.size());
  for (const auto& [link, queue_ns] : queues) {
    const LinkQueue* const q = Find(found, link);
    ASSERT_NE(nullptr, q);
    EXPECT_NEAR(queue_ns, q->queue_ns, 5 * q->error_ns) << link;
    EXPECT_LT(q->error_ns, 10e3);
  }
  EXPECT_EQ(0, found[3].queue_ns) << "nothing else queues";
  EXPECT_EQ(kPeersPerLeaf * (kLeaves - 1), Find(found, QueueUp(2))->paths);
}

// Hundreds of fabrics with one to six queues of 50 µs to 1 ms, noise of a tenth of the least.
TEST(LinkQueues, MedianErrorIsSmallAndNothingIsInvented) {
  std::vector<double> relative;
  int invented = 0, missed = 0, queued = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::uniform_real_distribution<double> exponent(std::log(50e3), std::log(1e6));
    std::map<uint64_t, double> queues;
    for (int n = 1 + pick(6); n > 0; --n) {
      const int kind = pick(3), leaf = 1 + pick(kLeaves - 1);
      const uint64_t link = kind == 0   ? QueueUp(pick(kQueueSpines))
                            : kind == 1 ? QueueDown(pick(kQueueSpines), leaf)
                                        : QueueEdge(leaf, pick(kPeersPerLeaf));
      queues[link] = std::exp(exponent(random));
    }
    for (const LinkQueue& q : FitLinkQueues(Observe(queues, 5e3, random))) {
      ASSERT_EQ(1u, q.links.size());
      const auto truth = queues.find(q.links[0]);
      if (truth == queues.end()) {
        invented += q.queue_ns > 20e3;
        continue;
      }
      ++queued;
      missed += q.queue_ns == 0;
      relative.push_back(std::abs(q.queue_ns - truth->second) / truth->second);
    }
  }
  std::sort(relative.begin(), relative.end());
  std::printf("relative error of a link's queue: median %.1f %%, p90 %.1f %%; %d of %d missed, %d invented\n",
              100 * relative[relative.size() / 2], 100 * relative[relative.size() * 9 / 10], missed, queued, invented);
  EXPECT_LE(relative[relative.size() / 2], 0.1);
  EXPECT_EQ(0, missed);
  EXPECT_EQ(0, invented);
}

TEST(LinkQueues, LinksThatNoPathTellsApartAreOneAnswer) {
  // One peer: each spine's two links always come together.
  const std::vector<PathQueue> paths = {{80e3, 1e3, {1, 11, 99}}, {0, 1e3, {2, 12, 99}}, {500, 1e3, {3, 13, 99}}};
  const std::vector<LinkQueue> found = FitLinkQueues(paths);
  ASSERT_EQ(4u, found.size());
  EXPECT_EQ((std::vector<uint64_t>{1, 11}), found[0].links);
  EXPECT_NEAR(80e3, found[0].queue_ns, 3e3);
  EXPECT_EQ(0, found[1].queue_ns);
}

// A slow receiver's paths, or a wrong list of links, must not turn into queues of links that others share.
TEST(LinkQueues, PathsThatFitNothingAreLeftOut) {
  std::mt19937 random(3);
  std::vector<PathQueue> paths = Observe({{QueueUp(1), 200e3}}, 5e3, random);
  for (size_t i = 0; i < paths.size(); i += 17) paths[i].queue_ns = 3e6;
  const std::vector<LinkQueue> found = FitLinkQueues(paths);
  const LinkQueue* const q = Find(found, QueueUp(1));
  ASSERT_NE(nullptr, q);
  EXPECT_NEAR(200e3, q->queue_ns, 40e3);
  for (int spine = 0; spine < kQueueSpines; ++spine) {
    const LinkQueue* const other = Find(found, QueueUp(spine));
    EXPECT_TRUE(spine == 1 || other->queue_ns < 40e3) << spine;
  }
}

TEST(LinkQueues, WithoutUsablePathsThereIsNothing) {
  EXPECT_TRUE(FitLinkQueues({}).empty());
  const std::vector<PathQueue> useless = {{1e3, 0, {1}}, {NAN, 1, {1}}, {1e3, 1, {}}};
  EXPECT_TRUE(FitLinkQueues(useless).empty());
}

}  // namespace
}  // namespace cw::control
