// SPDX-License-Identifier: Apache-2.0
//
// Why a flow is where it is: what `cwctl why` is answered with, from maps in plain memory.
#include "userspace/agent/views/why_view.h"

#include <gmock/gmock.h>

#include "tests/unit/agent_views_rig.h"

namespace cw::agent {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class WhyViewPart : public ViewsRig {
 protected:
  WhyViewPart() {
    host_.AddPaths({50'000, 50'001});
    host_.pair().table_seen = true;
  }
  FlowEntry& AddOn(uint8_t slot, uint8_t flags = 0) {
    FlowEntry& flow = host_.AddSent(1007);
    flow.tx.slot = slot;
    flow.tx.port = host_.mesh.slots(host_.index).port(slot);
    flow.tx.want_slot = flow.tx.native_slot = CW_SLOT_NONE;
    flow.tx.flags = flags;
    return flow;
  }
  v1::WhyReply OfFlow() { return view_.About(host_.FlowTo(1007).Id().ToString()).value_or(v1::WhyReply()); }
  static std::vector<std::string> Kinds(const v1::WhyReply& reply) {
    std::vector<std::string> kinds;
    for (const v1::WhyHold& hold : reply.holds()) kinds.push_back(hold.kind());
    return kinds;
  }

  std::string balance_held_;
  std::vector<Scopes::Hold> scopes_;
  WhyView view_{host_.flows,
                host_.pairs,
                qps_,
                owners_,
                host_.mesh,
                deadlines_,
                flows_view_,
                paths_view_,
                clock_,
                {.allowed = [this] { return allowed_; },
                 .discovery = [](uint32_t) -> const probe::Discovery* { return nullptr; },
                 .balance_held = [this] { return balance_held_; },
                 .scopes = [this](const PairState&, const FlowKey*) { return scopes_; },
                 .collective = [](const FlowKey&, v1::WhyReply&) {},
                 .rule =
                     [](const FlowKey&) {
                       control::Explanation e;
                       e.text = "it is where it should be";
                       return e;
                     }}};
};

TEST_F(WhyViewPart, AFlowThatNothingHoldsHasItsPathAndTheRulesWord) {
  AddOn(1);
  const v1::WhyReply reply = OfFlow();
  EXPECT_EQ(reply.placement(), "moved");
  EXPECT_EQ(reply.rule().text(), "it is where it should be");
  EXPECT_EQ(reply.path().path().slot(), 1u);
  EXPECT_THAT(reply.path().flows(), ElementsAre(host_.FlowTo(1007).Id().ToString()));
  EXPECT_EQ(reply.holds_size(), 0);
}

TEST_F(WhyViewPart, WhatAnOperatorSaidIsNamed) {
  AddOn(0, CW_STEER_MANUAL | CW_STEER_LOCKED);
  host_.pair().drained = 1;
  const v1::WhyReply reply = OfFlow();
  EXPECT_EQ(reply.placement(), "operator");
  EXPECT_THAT(Kinds(reply), ElementsAre("lock", "manual", "drained"));
}

TEST_F(WhyViewPart, TheModeTheScopeAndTheBreakerAreNamed) {
  AddOn(0);
  allowed_ = Allowed(Mode::kProtect);
  balance_held_ = "too many moves came to nothing";
  scopes_ = {{.text = "eth0 observes", .left_s = 60}};
  const v1::WhyReply reply = OfFlow();
  EXPECT_THAT(Kinds(reply), ElementsAre("mode", "scope", "breaker"));
  EXPECT_THAT(reply.holds(2).text(), HasSubstr("too many moves"));
  EXPECT_EQ(reply.holds(1).left_s(), 60);
}

TEST_F(WhyViewPart, AFlowOnADeadPathIsToldSo) {
  AddOn(1);
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  EXPECT_THAT(Kinds(OfFlow()), Contains("dead"));
  host_.shared().slot[1].state = CW_SLOT_UP;
  EXPECT_THAT(Kinds(OfFlow()), Not(Contains("dead")));
}

TEST_F(WhyViewPart, APathIsAskedForByThePeersNameAndItsNumber) {
  host_.pair().drained = 2;
  const absl::StatusOr<v1::WhyReply> reply = view_.About("h2/1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->has_flow());
  EXPECT_EQ(reply->path().path().slot(), 1u);
  EXPECT_THAT(Kinds(*reply), Contains("drained"));
}

TEST_F(WhyViewPart, WhatIsNeitherAFlowNorAPathIsRefused) {
  EXPECT_FALSE(view_.About("h2/9").ok());
  EXPECT_FALSE(view_.About("10.0.0.1>10.0.1.1/0x3ef").ok());
}

}  // namespace
}  // namespace cw::agent
