// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/link_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cw::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr int64_t kInterval = 10 * kMs;
constexpr int64_t kCut = 1000 * kMs, kDied = 1030 * kMs;

Addr Own() { return Addr::FromV4(1); }
Addr Up(uint32_t spine) { return Addr::FromV4(100 + spine); }
Addr Down(uint32_t spine, uint32_t leaf) { return Addr::FromV4(1000 + 10 * spine + leaf); }
Addr Peer(uint32_t peer) { return Addr::FromV4(5000 + peer); }

// Peers 0 and 1 on leaf 0, 2 and 3 on leaf 1; spines 0 and 1.
std::vector<Addr> LinksOf(uint32_t peer, uint32_t spine) {
  return {Own(), Up(spine), Down(spine, peer / 2), Peer(peer)};
}
uint64_t PathOf(uint32_t peer, uint32_t spine) { return 10 * peer + spine + 1; }

// All paths, that answered probes sent at `sent_ns`.
class Fabric {
 public:
  explicit Fabric(int64_t sent_ns) {
    for (uint32_t peer = 0; peer < 4; ++peer) {
      for (uint32_t spine = 0; spine < 2; ++spine) {
        links_.push_back(LinksOf(peer, spine));
        signs_.push_back({.path = PathOf(peer, spine), .links = {}, .sent_ns = sent_ns, .dead = false});
      }
    }
    for (size_t i = 0; i < signs_.size(); ++i) signs_[i].links = links_[i];
  }
  PathSign& at(uint32_t peer, uint32_t spine) { return signs_[2 * peer + spine]; }
  absl::Span<const PathSign> signs() const { return signs_; }

 private:
  std::vector<std::vector<Addr>> links_;
  std::vector<PathSign> signs_;
};

// The same peer's other path proved it.
PathDeath DeathOf(uint32_t peer, uint32_t spine, int64_t died_ns = kDied) {
  return {.path = PathOf(peer, spine),
          .links = LinksOf(peer, spine),
          .died_ns = died_ns,
          .alive_ns = kCut,
          .interval_ns = kInterval,
          .proven = LinksOf(peer, 1 - spine)};
}

TEST(LinkBlame, AnUplinkIsBlamedOnceForThePathsOfAllPeers) {
  LinkBlame blame;
  Fabric fabric(kDied + 20 * kMs);
  for (uint32_t peer = 0; peer < 4; ++peer) {
    blame.Died(DeathOf(peer, 0));
    fabric.at(peer, 0) = {.path = PathOf(peer, 0), .links = fabric.at(peer, 0).links, .sent_ns = kCut, .dead = true};
  }
  const std::vector<Blame> found = blame.Step(fabric.signs(), kDied + 40 * kMs);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].links, ElementsAre(Up(0)));
  EXPECT_THAT(found[0].deaths, SizeIs(4));
  EXPECT_FALSE(blame.Waits());
}

TEST(LinkBlame, ADownlinkIsToldFromTheUplinkByAPeerOnAnotherLeaf) {
  LinkBlame blame;
  Fabric fabric(kDied + 20 * kMs);
  for (uint32_t peer = 0; peer < 2; ++peer) {
    blame.Died(DeathOf(peer, 0));
    fabric.at(peer, 0).dead = true;
    fabric.at(peer, 0).sent_ns = kCut;
  }
  const std::vector<Blame> found = blame.Step(fabric.signs(), kDied + 40 * kMs);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].links, ElementsAre(Down(0, 0)));
}

// Peer 2's path over the same spine is probed rarely. Its last answer is from before the cut, and says nothing.
TEST(LinkBlame, WaitsForAPathThatSpeaksRarely) {
  LinkBlame blame;
  Fabric fabric(kDied + 5 * kMs);
  for (uint32_t peer = 1; peer < 4; ++peer) fabric.at(peer, 0).sent_ns = kCut - 50 * kMs;
  fabric.at(0, 0).dead = true;
  blame.Died(DeathOf(0, 0));
  EXPECT_THAT(blame.Step(fabric.signs(), kDied + 10 * kMs), IsEmpty());
  EXPECT_TRUE(blame.Waits());
  fabric.at(1, 0).sent_ns = kDied + 60 * kMs;  // the downlink lives, and with it the uplink
  const std::vector<Blame> found = blame.Step(fabric.signs(), kDied + 70 * kMs);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].links, IsEmpty()) << "each of its links carries another path";
}

TEST(LinkBlame, DoesNotWaitForEver) {
  LinkBlame blame(5000 * kMs);
  Fabric fabric(kCut - 50 * kMs);
  blame.Died(DeathOf(0, 0));
  EXPECT_THAT(blame.Step(fabric.signs(), kDied + 4999 * kMs), IsEmpty());
  const std::vector<Blame> found = blame.Step(fabric.signs(), kDied + 5000 * kMs);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].links, UnorderedElementsAre(Up(0), Down(0, 0))) << "nobody told them apart";
}

// The link was back before the path's own probe showed it: what others sent in that time clears nothing.
TEST(LinkBlame, WhatIsSentOnceTheLinkMayBeBackProvesNothing) {
  const int64_t back_ns = kDied + 100 * kMs;
  for (const bool during : {true, false}) {
    LinkBlame blame;
    blame.Died(DeathOf(0, 0));
    Fabric fabric(during ? back_ns - 3 * kInterval : back_ns - kInterval);
    fabric.at(0, 0).dead = true;
    for (uint32_t peer = 1; peer < 2; ++peer) fabric.at(peer, 0).sent_ns = kCut - 50 * kMs;
    blame.Back(PathOf(0, 0), back_ns);
    const std::vector<Blame> found = blame.Step(fabric.signs(), back_ns + kMs);
    ASSERT_THAT(found, SizeIs(1));
    if (during) {
      EXPECT_THAT(found[0].links, ElementsAre(Down(0, 0))) << "peers 2 and 3 went on over the uplink";
    } else {
      EXPECT_THAT(found[0].links, UnorderedElementsAre(Up(0), Down(0, 0)));
    }
  }
}

TEST(LinkBlame, TwoLinksAtOnceAreTwoFaults) {
  LinkBlame blame;
  Fabric fabric(kDied + 20 * kMs);
  const auto die = [&](uint32_t peer, uint32_t spine) {
    blame.Died(DeathOf(peer, spine));
    fabric.at(peer, spine).dead = true;
    fabric.at(peer, spine).sent_ns = kCut;
  };
  die(0, 0);
  die(1, 0);
  die(2, 1);
  die(3, 1);
  const std::vector<Blame> found = blame.Step(fabric.signs(), kDied + 40 * kMs);
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_THAT(found[0].links, ElementsAre(Down(0, 0)));
  EXPECT_THAT(found[1].links, ElementsAre(Down(1, 1)));
}

TEST(LinkBlame, APauseIsForgotten) {
  LinkBlame blame;
  blame.Died(DeathOf(0, 0));
  blame.Forget(PathOf(0, 0));
  EXPECT_FALSE(blame.Waits());
}

TEST(LinkBlame, APathWithoutKnownLinksIsAFaultWithoutLinks) {
  LinkBlame blame;
  blame.Died({.path = 7, .links = {}, .died_ns = kDied, .alive_ns = kCut, .interval_ns = kInterval, .proven = {}});
  const std::vector<Blame> found = blame.Step({}, kDied);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].links, IsEmpty());
  ASSERT_THAT(found[0].deaths, SizeIs(1));
  EXPECT_EQ(found[0].deaths[0].path, 7u);
}

}  // namespace
}  // namespace cw::control
