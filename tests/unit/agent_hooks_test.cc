// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr dataplane::HookLook kAll{.xdp = true, .tc_egress = true, .tc_ingress = true};

class HooksPart : public ::testing::Test {
 protected:
  HooksPart() { nic().attached = true; }
  NicState& nic() { return host_.nics[0]; }
  void Look(int times = 1) {
    for (int i = 0; i < times; ++i) {
      clock_.Advance(kSecond);
      hooks_.LookAtAll();
    }
  }

  OnePair host_;
  ManualClock clock_{1000 * kSecond};
  absl::StatusOr<dataplane::HookLook> look_ = kAll;
  absl::Status attach_;
  bool attach_mends_ = true;
  int attached_ = 0;
  bool off_ = false;
  std::vector<std::string> others_;
  std::vector<Hooks::Rounds> rounds_;
  absl::StatusOr<std::vector<std::string>> restored_ = std::vector<std::string>();
  Hooks hooks_{host_.nics,
               clock_,
               host_.events,
               {.look = [this](const NicState&) { return look_; },
                .attach = [this](const NicState&) -> absl::StatusOr<dataplane::AttachInfo> {
                  ++attached_;
                  if (!attach_.ok()) return attach_;
                  if (attach_mends_) look_ = kAll;
                  return dataplane::AttachInfo{};
                },
                .others = [this](const NicState&) { return others_; },
                .rounds = [this](const NicState&) { return rounds_; },
                .restore_pins = [this] { return restored_; },
                .off = [this] { return off_; }}};
};

TEST_F(HooksPart, NothingIsSaidOfWhatIsThere) {
  rounds_ = {{.sent = 10, .seen = 9}};
  Look(5);
  EXPECT_THAT(host_.events.all, IsEmpty());
  EXPECT_TRUE(nic().has_programs());
  EXPECT_EQ(attached_, 0);
}

TEST_F(HooksPart, WhatIsGoneIsAttachedAgainAndReported) {
  look_->tc_egress = false;
  Look();
  EXPECT_EQ(attached_, 1);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, AllOf(HasSubstr("eth0"), HasSubstr("tc egress"), HasSubstr("attached again")));
  EXPECT_TRUE(nic().has_programs());
  Look(3);
  EXPECT_THAT(host_.events.all, SizeIs(1));
}

// cwfabric-off --force switches it off before it takes the programs out.
TEST_F(HooksPart, WhatIsDetachedWhileTheModeIsOffStaysSo) {
  off_ = true;
  look_ = dataplane::HookLook{};
  restored_ = std::vector<std::string>{"cw_ctl"};
  Look(5);
  EXPECT_EQ(attached_, 0);
  EXPECT_THAT(nic().Trouble(), HasSubstr("cwctl mode observe"));
  EXPECT_TRUE(nic().programs_gone);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  off_ = false;
  Look();
  EXPECT_EQ(attached_, 1);
  EXPECT_FALSE(nic().programs_gone);
}

TEST_F(HooksPart, TheOneHooksRepairsAreNotTheOthers) {
  for (int i = 0; i < 3; ++i) {
    look_->tc_egress = false;
    Look(2);
  }
  EXPECT_EQ(attached_, 3);
  look_->xdp = false;
  Look();
  EXPECT_EQ(attached_, 4);
}

TEST_F(HooksPart, WaitsForAMomentWithoutQueuePairsForAsLongAsItTakes) {
  look_ = absl::FailedPreconditionError("nothing was attached yet");
  attach_ = absl::UnavailableError("the programs wait");
  Look(100);
  EXPECT_EQ(attached_, 100);
  EXPECT_EQ(nic().Trouble(), "NIC eth0: the programs wait");
  EXPECT_FALSE(nic().has_programs());
  ASSERT_THAT(host_.events.all, SizeIs(1));
  attach_ = absl::OkStatus();
  Look();
  EXPECT_TRUE(nic().has_programs());
  ASSERT_THAT(host_.events.all, SizeIs(2));
  EXPECT_THAT(host_.events.all[1].text, HasSubstr("see its packets again"));
}

TEST_F(HooksPart, WhoeverDetachesItAgainAndAgainIsNotFoughtEachSecond) {
  attach_mends_ = false;
  look_->xdp = false;
  Look(59);
  EXPECT_EQ(attached_, 3);
  EXPECT_THAT(nic().Trouble(), HasSubstr("again and again"));
  EXPECT_FALSE(nic().has_programs());
  Look(10 * 60);
  EXPECT_LE(attached_, 3 + 11);
  EXPECT_GE(attached_, 3 + 9) << "once a minute";
}

TEST_F(HooksPart, AnotherProgramInItsPlaceIsNamedAndLeftUntilItGoes) {
  look_->xdp = false;
  look_->other_xdp = 77;
  others_ = {"xdp native firewall (id 77)"};
  Look(3);
  EXPECT_EQ(attached_, 0);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(host_.events.all[0].text,
              AllOf(HasSubstr("id 77"), HasSubstr("firewall"), HasSubstr("no dead path is left")));
  look_->other_xdp = 0;
  Look();
  EXPECT_EQ(attached_, 1);
  EXPECT_EQ(nic().Trouble(), "");
  EXPECT_THAT(host_.events.all.back().text, HasSubstr("see its packets again"));
}

TEST_F(HooksPart, ARepairThatFailsSaysWhy) {
  look_->tc_egress = false;
  attach_ = absl::PermissionDeniedError("no CAP_NET_ADMIN");
  Look();
  EXPECT_THAT(nic().Trouble(), HasSubstr("no CAP_NET_ADMIN"));
  look_ = absl::FailedPreconditionError("not attached");  // what the dataplane says after it
  attach_ = absl::OkStatus();
  Look();
  EXPECT_EQ(nic().Trouble(), "");
  EXPECT_TRUE(nic().has_programs());
}

TEST_F(HooksPart, ProbesThatNoProgramSeesAreTheHostsOwnFault) {
  rounds_ = {{.sent = 10, .seen = 5}, {.sent = 400, .seen = 0}};
  Look();
  EXPECT_EQ(nic().Trouble(), "") << "once may be chance";
  others_ = {"tc egress shaper (id 3)"};
  Look(2);
  EXPECT_THAT(nic().Trouble(), AllOf(HasSubstr("do not reach"), HasSubstr("shaper")));
  rounds_ = {{.sent = 10, .seen = 5}, {.sent = 401, .seen = 401}};
  Look();
  EXPECT_EQ(nic().Trouble(), "");
}

TEST_F(HooksPart, WithoutACarrierOrWithoutProbesNothingIsConcluded) {
  rounds_ = {};
  Look(5);
  EXPECT_EQ(nic().Trouble(), "");
  rounds_ = {{.sent = 10, .seen = 0}};
  nic().link_up = false;
  Look(5);
  EXPECT_EQ(nic().Trouble(), "");
}

TEST_F(HooksPart, WhatCannotBeAskedChangesNothing) {
  look_ = absl::UnavailableError("no descriptor left");
  Look(5);
  EXPECT_EQ(attached_, 0);
  EXPECT_EQ(nic().Trouble(), "");
}

TEST_F(HooksPart, PinsThatAreMadeAgainAreReportedOnceEach) {
  restored_ = std::vector<std::string>{"cw_ctl", "cw_pairs"};
  Look();
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("2 pins"));
  restored_ = absl::PermissionDeniedError("read-only");
  Look(3);
  ASSERT_THAT(host_.events.all, SizeIs(2));
  EXPECT_THAT(host_.events.all[1].text, HasSubstr("read-only"));
}

}  // namespace
}  // namespace cw::agent
