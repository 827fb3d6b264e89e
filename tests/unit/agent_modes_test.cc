// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/lease.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const api::Caller kAnn{.name = "ann", .role = api::Role::kSteer, .via = "uid 7"};

class ModesPart : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(kPath); }
  void TearDown() override { std::filesystem::remove(kPath); }

  v1::SetModeRequest Request(v1::Mode mode, double for_s = 0) {
    v1::SetModeRequest request;
    request.set_mode(mode);
    request.set_for_s(for_s);
    return request;
  }
  // What is due by then ends.
  void PassSeconds(int seconds) {
    now_.Advance(seconds * kSecond);
    if (const Deadlines::Due due = deadlines_.TakeDue(now_.NowNs()); due.mode) modes_.Due(*due.mode);
  }

  const std::string kPath = testing::TempDir() + "/modes_deadlines.json";
  cw_ctl ctl_{};
  ManualClock now_{kSecond};
  Deadlines deadlines_{kPath, "boot"};
  std::vector<telemetry::Event> told_;
  Journal journal_{[this](const telemetry::Event& event) { told_.push_back(event); }};
  Modes modes_{ctl_, deadlines_, now_, journal_};
};

TEST_F(ModesPart, TheConfiguredOneHoldsForADataplaneMadeAnewAndAnOperatorsForAnAdoptedOne) {
  modes_.Begin(Mode::kProtect, {}, /*adopted=*/false);
  EXPECT_EQ(modes_.mode(), Mode::kProtect);
  EXPECT_EQ(ctl_.mode, Allowed(Mode::kProtect).word());
  Modes next(ctl_, deadlines_, now_, journal_);
  next.Begin(Mode::kOptimize, {}, /*adopted=*/true);
  EXPECT_EQ(next.mode(), Mode::kProtect);
}

TEST_F(ModesPart, AChangeSaysWhoMadeItAndHowToUndoIt) {
  modes_.Begin(Mode::kProtect, {}, false);
  const absl::StatusOr<v1::ActionReply> reply = modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(modes_.mode(), Mode::kOptimize);
  EXPECT_EQ(reply->undo(), "mode protect");
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_EQ(told_[0].type, "mode");
  EXPECT_THAT(told_[0].text, HasSubstr("ann: mode optimize (was protect)"));
}

TEST_F(ModesPart, OneForAWhileGoesBackAndASecondGoesBackToWhereTheFirstWould) {
  modes_.Begin(Mode::kProtect, {}, false);
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE, 60)).ok());
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OBSERVE, 60)).ok());
  PassSeconds(59);
  EXPECT_EQ(modes_.mode(), Mode::kObserve);
  PassSeconds(2);
  EXPECT_EQ(modes_.mode(), Mode::kProtect);
}

TEST_F(ModesPart, WhatSomebodyElseSetMeanwhileDoesNotGoBack) {
  modes_.Begin(Mode::kProtect, {}, false);
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE, 60)).ok());
  ctl_.mode = Allowed(Mode::kOff).word();  // as cwctl off does without an agent
  PassSeconds(61);
  EXPECT_EQ(modes_.mode(), Mode::kOff);
}

TEST_F(ModesPart, OffThatSomebodyElseSetInTheMapIsReportedOnceAndStays) {
  modes_.Begin(Mode::kProtect, {}, false);
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE, 60)).ok());
  modes_.LookAtMap();
  told_.clear();
  ctl_.mode = CW_MODE_OFF;  // as cwctl off does where no agent answers in time
  modes_.LookAtMap();
  modes_.LookAtMap();
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_EQ(told_[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(told_[0].text,
              HasSubstr("mode off was set in the kernel's map by somebody else (cwctl off or cwfabric-off), was opti"));
  EXPECT_EQ(ctl_.mode, static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_FALSE(deadlines_.mode()) << "nothing switches on again";
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_PROTECT)).ok());
  modes_.LookAtMap();
  EXPECT_THAT(told_, SizeIs(2)) << "the second is the operator's";
}

TEST_F(ModesPart, OffThatWasSetInTheMapBeforeTheAgentsOwnIsReportedToo) {
  modes_.Begin(Mode::kProtect, {}, false);
  ctl_.mode = CW_MODE_OFF;
  EXPECT_EQ(modes_.SwitchOff(), Allowed(Mode::kOff));  // the call that was answered too late
  modes_.Change(kAnn, Mode::kOff, Mode::kOff, 0);
  ASSERT_THAT(told_, SizeIs(2));
  EXPECT_THAT(told_[0].text, HasSubstr("by somebody else"));
  EXPECT_THAT(told_[1].text, HasSubstr("ann: mode off"));
}

TEST_F(ModesPart, ItsOwnOffIsNobodyElses) {
  modes_.Begin(Mode::kProtect, {}, false);
  const Allowed was = modes_.SwitchOff();
  modes_.LookAtMap();  // before the loop comes to the call
  EXPECT_THAT(told_, IsEmpty());
  modes_.Change(kAnn, was, Mode::kOff, 0);
  EXPECT_THAT(told_, SizeIs(1));
}

TEST_F(ModesPart, OffThatARestartFindsIsReported) {
  ctl_.mode = CW_MODE_OFF;
  modes_.Begin(Mode::kProtect, {}, /*adopted=*/true);
  modes_.LookAtMap();
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_EQ(told_[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(told_[0].text, HasSubstr("mode off was found in the kernel's map"));
  EXPECT_EQ(modes_.mode(), Mode::kOff);
}

TEST_F(ModesPart, OffIsInTheWordAtOnceAndACapabilityAloneDoesNotEndIt) {
  modes_.Begin(Mode::kOptimize, {}, false);
  EXPECT_EQ(modes_.SwitchOff(), Allowed(Mode::kOptimize));
  EXPECT_EQ(ctl_.mode, static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_FALSE(modes_.ActsAtAll());
  EXPECT_TRUE(absl::IsFailedPrecondition(modes_.Set(kAnn, Request(v1::MODE_UNSPECIFIED)).status()));
}

TEST_F(ModesPart, AConfigurationReadAnewCountsOnlyWhereItsModeIsAnother) {
  modes_.Begin(Mode::kProtect, {}, false);
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE)).ok());
  modes_.TakeConfigured(Mode::kProtect, Mode::kProtect);
  EXPECT_EQ(modes_.mode(), Mode::kOptimize) << "the operator's choice holds";
  modes_.TakeConfigured(Mode::kProtect, Mode::kObserve);
  EXPECT_EQ(modes_.mode(), Mode::kObserve);
  modes_.SwitchOff();
  told_.clear();
  modes_.TakeConfigured(Mode::kObserve, Mode::kProtect);
  EXPECT_EQ(modes_.mode(), Mode::kOff) << "an emergency off holds until an operator ends it";
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0].text, HasSubstr("the mode is off and stays"));
}

TEST_F(ModesPart, ACapabilityIsSwitchedByItselfAndStaysSwitchedInAnotherMode) {
  modes_.Begin(Mode::kOptimize, {}, false);
  v1::SetModeRequest request = Request(v1::MODE_UNSPECIFIED);
  v1::CapabilityAllow* balance = request.add_allowed();
  balance->set_capability("balance");
  balance->set_allow(v1::ALLOW_OBSERVE);
  const absl::StatusOr<v1::ActionReply> reply = modes_.Set(kAnn, request);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->undo(), "mode optimize balance=mode");
  EXPECT_TRUE(modes_.Observes(Capability::kBalance));
  EXPECT_TRUE(modes_.Acts(Capability::kFailover));
  ASSERT_TRUE(modes_.Set(kAnn, Request(v1::MODE_OPTIMIZE)).ok());
  EXPECT_TRUE(modes_.Observes(Capability::kBalance));
  balance->set_capability("nothing");
  EXPECT_TRUE(absl::IsInvalidArgument(modes_.Set(kAnn, request).status()));
}

// A kernel of 250 Hz that booted with the clock.
class LeasePart : public ::testing::Test {
 protected:
  cw_ctl ctl_{};
  ManualClock now_{100 * kSecond};
  RecordedEvents events_;
  Lease lease_{ctl_,
               {.at = [](int64_t ns) { return static_cast<uint64_t>(ns / 4'000'000); },
                .ns = [](uint64_t jiffies) { return static_cast<int64_t>(jiffies) * 4'000'000; }},
               now_};
  const Lease::Flows flows_{.steered = [] { return size_t{3}; }, .went_home = [] { return uint64_t{5}; }};
};

TEST_F(LeasePart, IsRenewedFromNowAndZeroNeverEnds) {
  lease_.Renew(absl::Seconds(10));
  EXPECT_EQ(ctl_.lease_jiffies, 110u * 250);
  now_.Advance(4 * kSecond);
  EXPECT_DOUBLE_EQ(lease_.LeftS(), 6);
  lease_.Renew(absl::ZeroDuration());
  EXPECT_EQ(ctl_.lease_jiffies, 0u);
  EXPECT_EQ(lease_.LeftS(), 0);
}

TEST_F(LeasePart, OneThatRanOutIsToldWithWhatItDid) {
  ctl_.lease_jiffies = 97 * 250;
  lease_.TellOfFormer(absl::Seconds(10), flows_, events_);
  ASSERT_THAT(events_.all, SizeIs(1));
  EXPECT_THAT(events_.all[0].text, HasSubstr("ran out 3.0 s ago"));
  EXPECT_EQ(events_.all[0].severity, telemetry::Severity::kAlert);
  EXPECT_EQ(events_.all[0].evidence[0].second, "3");
  EXPECT_EQ(events_.all[0].evidence[1].second, "5");
  EXPECT_DOUBLE_EQ(lease_.found_over_s(), 3);
}

TEST_F(LeasePart, OneThatHoldsOrNeverEndsIsNoNews) {
  ctl_.lease_jiffies = 101 * 250;
  lease_.TellOfFormer(absl::Seconds(10), flows_, events_);
  ctl_.lease_jiffies = 0;
  lease_.TellOfFormer(absl::Seconds(10), flows_, events_);
  EXPECT_THAT(events_.all, IsEmpty());
}

TEST_F(LeasePart, ASuccessorIsAwaitedForTenSecondsByPairsThatWereLookedAfter) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  cw_pair probed{}, left{}, never{};
  probed.round_jiffies = 100 * 250 - 20;
  left.round_jiffies = 100 * 250 - 100;
  for (cw_pair* pair : {&probed, &left, &never}) lease_.AwaitSuccessor(*pair);
  EXPECT_EQ(probed.round_jiffies, 110u * 250);
  EXPECT_EQ(left.round_jiffies, 100u * 250 - 100) << "its flows look after themselves already";
  EXPECT_EQ(never.round_jiffies, 0u);
  lease_.SetPresent(true, 8);
  lease_.AwaitSuccessor(left);
  EXPECT_EQ(left.round_jiffies, 110u * 250) << "the agent was only late";
}

TEST_F(LeasePart, FlowsLookAfterThemselvesAfterThreeIdleIntervalsAndNotSooner) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  EXPECT_EQ(ctl_.blind_jiffies, 62u) << "250 ms at least";
  lease_.SetBlindAfter(absl::Seconds(1));
  EXPECT_EQ(ctl_.blind_jiffies, 750u);
  lease_.SetBlindAfter(absl::Seconds(1000));
  EXPECT_EQ(ctl_.blind_jiffies, UINT16_MAX);
}

TEST_F(LeasePart, WhileTheAgentIsThereItIsStuckMuchLater) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  EXPECT_EQ(ctl_.stuck_jiffies, 0u) << "nobody asks";
  lease_.SetPresent(true, 3);
  EXPECT_EQ(ctl_.stuck_jiffies, 2u * 250);
  EXPECT_EQ(ctl_.blind_jiffies, 62u);
  lease_.ProberSlows(absl::Seconds(1));
  EXPECT_EQ(ctl_.stuck_jiffies, 0u) << "between two rounds flows look after themselves";
}

TEST_F(LeasePart, WhereAStackCanKeepAllProcessorsToItselfAnAgentIsStuckLaterStill) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  lease_.SetPresent(true, 2);
  EXPECT_EQ(ctl_.stuck_jiffies, 60u * 250);
}

TEST_F(LeasePart, AnAgentIsStuckAfterTwiceAsLongAsItEverWaited) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  lease_.SetPresent(true, 8);
  lease_.SawProber(absl::Milliseconds(900), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.stuck_jiffies, 2u * 250);
  lease_.SawProber(absl::Seconds(3), absl::Milliseconds(1));
  lease_.SawProber(absl::Milliseconds(1), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.stuck_jiffies, 6u * 250);
  lease_.SawProber(absl::Seconds(300), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.stuck_jiffies, 60u * 250);
}

TEST_F(LeasePart, AProberThatKeepsToItsShareIsNotTakenForOneThatIsGone) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  lease_.SawProber(absl::Milliseconds(1), absl::Milliseconds(80));
  EXPECT_EQ(ctl_.blind_jiffies, 62u);
  lease_.SawProber(absl::Milliseconds(1), absl::Milliseconds(160));
  EXPECT_EQ(ctl_.blind_jiffies, 120u) << "three intervals";
  lease_.ProberSlows(absl::Milliseconds(200));
  EXPECT_EQ(ctl_.blind_jiffies, 150u) << "at once";
  lease_.ProberSlows(absl::Milliseconds(100));
  EXPECT_EQ(ctl_.blind_jiffies, 150u) << "for some minutes";
  lease_.SawProber(absl::Milliseconds(1), absl::Seconds(30));
  EXPECT_EQ(ctl_.blind_jiffies, 750u) << "three seconds at most";
}

TEST_F(LeasePart, AProberThatWaitsForAProcessorIsNotTakenForOneThatIsGone) {
  lease_.SetBlindAfter(absl::Milliseconds(20));
  lease_.SawProber(absl::Milliseconds(100), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.blind_jiffies, 62u);
  lease_.SawProber(absl::Milliseconds(300), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.blind_jiffies, 150u) << "twice as long as it was late";
  lease_.SawProber(absl::Seconds(30), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.blind_jiffies, 250u) << "a second at most, for an agent may really be gone";
  for (int second = 0; second < 600; ++second) lease_.SawProber(absl::Milliseconds(1), absl::Milliseconds(1));
  EXPECT_EQ(ctl_.blind_jiffies, 62u) << "forgotten after some minutes";
}

}  // namespace
}  // namespace cw::agent
