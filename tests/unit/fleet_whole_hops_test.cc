// SPDX-License-Identifier: Apache-2.0
// What a path took when it lived, and where its trace ends now.
#include "userspace/fleet/live/whole_hops.h"

#include <gtest/gtest.h>

namespace cw::fleet {
namespace {

using State = PathEvidence::State;
using Hops = std::vector<Addr>;

const Addr kLeaf = Addr::FromV4(1), kSpine = Addr::FromV4(2), kFar = Addr::FromV4(3), kOther = Addr::FromV4(4);
const Hops kWhole = {kLeaf, kSpine, kFar};

PathEvidence Path(const Hops& hops, State state) {
  return {.source = Addr::FromV4(8),
          .destination = Addr::FromV4(9),
          .udp_port = 7,
          .hops = &hops,
          .hops_id = hops.size(),
          .state = state};
}

class WholeHopsTest : public testing::Test {
 protected:
  WholeHopsTest() { (void)Seen(kWhole, State::kAlive); }
  PathEvidence Seen(const Hops& hops, State state, int64_t now_ns = 1) {
    PathEvidence path = Path(hops, state);
    whole_.Complete(path, now_ns);
    return path;
  }
  WholeHops whole_;
};

TEST_F(WholeHopsTest, ADeadPathKeepsItsHopsAndSaysHowFarItsTraceGets) {
  const Hops cut = {kLeaf, kSpine, Addr{}};
  const PathEvidence path = Seen(cut, State::kDead);
  EXPECT_EQ(*path.hops, kWhole);
  EXPECT_EQ(path.hops_id, kWhole.size());
  EXPECT_EQ(path.reached, 2u);
}

// An agent that starts anew: its first trace ends at the cut, and its path was never heard in this run.
TEST_F(WholeHopsTest, SoDoesOneOfANewRun) {
  const Hops cut = {kLeaf, Addr{}};
  EXPECT_EQ(*Seen(cut, State::kNew).hops, kWhole);
}

TEST_F(WholeHopsTest, APathThatLivesIsCutNowhere) {
  const Hops short_for_a_moment = {kLeaf, Addr{}};
  const PathEvidence path = Seen(short_for_a_moment, State::kAlive);
  EXPECT_EQ(*path.hops, kWhole);
  EXPECT_EQ(path.reached, 0u);
}

TEST_F(WholeHopsTest, AnotherPathIsAnother) {
  const Hops other = {kOther, Addr{}};
  EXPECT_EQ(*Seen(other, State::kDead).hops, other);
  const Hops moved = {kOther, kSpine, kFar};
  (void)Seen(moved, State::kAlive);
  EXPECT_EQ(*Seen(other, State::kDead).hops, moved);
}

TEST_F(WholeHopsTest, AnHourLaterItIsForgotten) {
  whole_.Age(WholeHops::kKeptNs + 2);
  const Hops cut = {kLeaf, Addr{}};
  EXPECT_EQ(*Seen(cut, State::kDead).hops, cut);
}

}  // namespace
}  // namespace cw::fleet
