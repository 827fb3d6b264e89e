// SPDX-License-Identifier: Apache-2.0
//
// Paths in the words of the schema, from maps in plain memory.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/unit/agent_views_rig.h"

namespace cw::agent {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PathsViewPart : public ViewsRig {
 protected:
  PathsViewPart() {
    const std::vector<uint16_t> ports = {50'000, 50'001};
    host_.mesh.slots(host_.index)
        .SetPaths(
            ports, [](uint16_t) { return std::nullopt; }, 0);
    for (cw_slot& slot : host_.store.At(host_.index)->slot) slot.state = CW_SLOT_UP;
  }
  cw_slot& shared(uint8_t slot) { return host_.store.At(host_.index)->slot[slot]; }
};

TEST_F(PathsViewPart, APairHasItsNamesAndOnePathPerPort) {
  const v1::PathsReply reply = paths_view_.All({});
  ASSERT_EQ(reply.pairs_size(), 1);
  EXPECT_EQ(reply.pairs(0).peer(), "h2");
  EXPECT_EQ(reply.pairs(0).nic(), "eth0");
  EXPECT_EQ(reply.pairs(0).dscp_from(), "default");
  EXPECT_DOUBLE_EQ(reply.pairs(0).interval_s(), 0.1);
  EXPECT_EQ(reply.pairs(0).last_reply_ago_s(), -1) << "it never answered";
  EXPECT_EQ(reply.pairs(0).table(), "discovering");
  EXPECT_THAT(reply.pairs(0).paths(), SizeIs(2));
}

TEST_F(PathsViewPart, APeerIsChosenByNameOrAddress) {
  v1::PathsRequest request;
  request.set_remote("h2");
  EXPECT_EQ(paths_view_.All(request).pairs_size(), 1);
  request.set_remote("10.0.1.1");
  EXPECT_EQ(paths_view_.All(request).pairs_size(), 1);
  request.set_remote("h3");
  EXPECT_EQ(paths_view_.All(request).pairs_size(), 0);
}

TEST_F(PathsViewPart, ADeadPathThatIsFoundPausedIsPaused) {
  shared(0).state = CW_SLOT_DEAD;
  EXPECT_EQ(paths_view_.Path(host_.pair(), 0).state(), v1::PATH_STATE_DEAD);
  host_.pair().slot[0].silence =
      SilentPath{.watch = {clock_.NowNs(), control::SilenceFound{}}, .damping = control::PathDamping()};
  EXPECT_EQ(paths_view_.Path(host_.pair(), 0).state(), v1::PATH_STATE_DEAD) << "not judged yet";
  v1::PeerStatus peer;
  v1::PathCounts counts;
  paths_view_.Count(host_.pair(), peer, counts);
  EXPECT_EQ(peer.paths(), 2u);
  EXPECT_EQ(peer.paths_live(), 1u);
  EXPECT_EQ(counts.dead(), 1u);
  EXPECT_EQ(counts.up(), 1u);
}

TEST_F(PathsViewPart, FlowsCountWhereTheirPacketsAre) {
  FlowEntry& flow = host_.AddSent(7);
  flow.tx.slot = 1;
  flow.tx.native_slot = 0;
  flow.tx.port = 50'001;
  EXPECT_EQ(paths_view_.Path(host_.pair(), 1).flows(), 1u);
  allowed_ = Allowed(Mode::kObserve);
  EXPECT_EQ(paths_view_.Path(host_.pair(), 1).flows(), 0u);
  EXPECT_EQ(paths_view_.Path(host_.pair(), 0).flows(), 1u);
}

TEST_F(PathsViewPart, WhatKeepsFlowsOffAPathIsToldOfItAlone) {
  host_.pair().damped = 0b01;
  host_.pair().drained = 0b10;
  host_.pair().blocked = 0b11;
  const v1::Path first = paths_view_.Path(host_.pair(), 0), second = paths_view_.Path(host_.pair(), 1);
  EXPECT_TRUE(first.damped());
  EXPECT_FALSE(first.drained());
  EXPECT_FALSE(first.assignable());
  EXPECT_TRUE(second.drained());
  EXPECT_FALSE(second.damped());
}

TEST_F(PathsViewPart, TheUplinkSeesBothDirectionsWhereRepliesCame) {
  SlotState& slot = host_.pair().slot[0];
  for (int i = 0; i < 50; ++i) {
    clock_.Advance(kSecond / 50);
    slot.forward.AddProbe(clock_.NowNs(), 20'000 + i);
  }
  EXPECT_THAT(paths_view_.Seen(10), SizeIs(2)) << "one direction of each path";
  for (int i = 0; i < 50; ++i) {
    clock_.Advance(kSecond / 50);
    slot.reverse.AddProbe(clock_.NowNs(), 30'000 + i);
  }
  const std::vector<uplink::PathSeen> seen = paths_view_.Seen(10);
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_FALSE(seen[0].reverse);
  EXPECT_TRUE(seen[1].reverse);
  EXPECT_EQ(seen[1].peer, "h2");
  EXPECT_FALSE(seen[1].hops.has_value()) << "only the peer knows them";
}

TEST_F(PathsViewPart, OutagesOfOurOwnLinksGoByTheNicsAddress) {
  links_.OwnLinkDown("eth0", clock_.NowNs());
  const LinkPast past = paths_view_.PastOfLinks();
  ASSERT_EQ(past.own.count("10.0.0.1"), 1u);
  EXPECT_EQ(past.own.at("10.0.0.1").flaps, 1u);
}

}  // namespace
}  // namespace cw::agent
