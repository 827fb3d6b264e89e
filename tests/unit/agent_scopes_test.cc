// SPDX-License-Identifier: Apache-2.0
//
// Modes of one NIC, one rail or one job: what they take away, what the programs are told, and that parts which act ask.
#include "userspace/agent/scopes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kAllCaps = CW_CAPS_ALL;
constexpr uint32_t kBalanceBit = 1u << CW_CAP_BALANCE;
const api::Caller kEve{.name = "eve", .role = api::Role::kAdmin, .via = "uid 9"};

config::ScopeConfig OfNic(const std::string& nic, config::Mode mode) { return {.nic = nic, .mode = mode}; }
config::ScopeConfig OfJob(const std::string& label, config::Mode mode) { return {.label = label, .mode = mode}; }

// Two NICs, eth0 with the one pair that there is; flows of jobs by their queue pairs' numbers.
class ScopesPart : public ::testing::Test {
 protected:
  ScopesPart() {
    host_.nics.push_back({.config = {.name = "eth1"}, .device = "eth1", .ifindex = 3});
    host_.AddPaths({100, 101, 102});
    modes_.Begin(Mode::kOptimize, {}, /*adopted=*/false);
    modes_.Narrow([this](uint32_t pair, const FlowKey* flow) { return scopes_.Withheld(pair, flow); });
  }
  void SetUp() override { std::filesystem::remove(kPath); }
  void TearDown() override { std::filesystem::remove(kPath); }

  Scopes Make() {
    return Scopes(kPath, "boot", modes_, host_.nics, host_.pairs, host_.flows, records_, host_.mesh, now_, journal_,
                  {.label = [this](const FlowKey& flow) { return jobs_[flow.dqpn]; }});
  }
  FlowKey AddFlow(uint32_t qpn, const std::string& job = "") {
    jobs_[qpn] = job;
    return host_.AddFlow(records_, qpn, 1);
  }
  void Step() { scopes_.Step(now_.NowNs()); }
  v1::SetModeRequest Request(v1::Mode mode, double for_s = 0) {
    v1::SetModeRequest request;
    request.set_mode(mode);
    request.set_for_s(for_s);
    return request;
  }
  Allowed On() { return modes_.may()(host_.index); }
  Allowed Of(const FlowKey& flow) { return modes_.may()(host_.index, flow); }

  const std::string kPath = testing::TempDir() + "/scopes_part.json";
  OnePair host_;
  MemoryFlows records_;
  cw_ctl ctl_{};
  ManualClock now_{1000 * kSecond};
  Deadlines deadlines_{kPath + ".deadlines", "boot"};
  std::vector<telemetry::Event> told_;
  Journal journal_{[this](const telemetry::Event& event) { told_.push_back(event); }};
  Modes modes_{ctl_, deadlines_, now_, journal_};
  std::map<uint32_t, std::string> jobs_;
  Scopes scopes_ = Make();
};

TEST_F(ScopesPart, WithoutAnyNothingIsNarrower) {
  const FlowKey flow = AddFlow(7, "job-x");
  Step();
  EXPECT_EQ(Of(flow), Allowed(Mode::kOptimize));
  EXPECT_EQ(host_.shared().withheld, 0u);
  EXPECT_EQ(records_.sent[flow].withheld, 0);
}

TEST_F(ScopesPart, ANicInObserveActsOnNothingAndItsPacketsAreOnNativePorts) {
  const FlowKey flow = AddFlow(7);
  scopes_.Take({OfNic("eth0", config::Mode::kObserve)});
  EXPECT_FALSE(On().ActsAtAll());
  EXPECT_TRUE(On().Decides(Capability::kFailover));  // it is logged
  EXPECT_TRUE(modes_.allowed().ActsAtAll());
  Step();
  EXPECT_EQ(host_.shared().withheld, kAllCaps);
  EXPECT_EQ(host_.flows.sent[flow].SlotOfPackets(true), CW_SLOT_NONE);  // its native port is not probed
  scopes_.Take({});
  Step();
  EXPECT_EQ(host_.shared().withheld, 0u);
  EXPECT_EQ(host_.flows.sent[flow].SlotOfPackets(true), 1);
}

TEST_F(ScopesPart, OfAllThatApplyTheLeastHoldsInWhateverOrder) {
  const config::ScopeConfig protect{.rail = 0, .mode = config::Mode::kProtect};
  const config::ScopeConfig observe = OfNic("eth0", config::Mode::kObserve);
  for (const auto& both : {std::vector{protect, observe}, std::vector{observe, protect}}) {
    scopes_.Take(both);
    EXPECT_EQ(scopes_.Withheld(host_.index, nullptr), kAllCaps);
  }
  scopes_.Take({protect});
  EXPECT_EQ(On(), Allowed(Mode::kOptimize).With(Capability::kBalance, Allow::kObserve));
}

TEST_F(ScopesPart, AScopeNeverDoesMoreThanTheHost) {
  scopes_.Take({OfNic("eth0", config::Mode::kOptimize)});
  (void)modes_.Set(kEve, Request(v1::MODE_OBSERVE));
  EXPECT_FALSE(On().ActsAtAll());
  (void)modes_.Set(kEve, Request(v1::MODE_OFF));
  EXPECT_EQ(On(), Allowed());
}

TEST_F(ScopesPart, WhoEndsOneHearsWhatStillHolds) {
  scopes_.Take({{.rail = 0, .mode = config::Mode::kObserve}});
  v1::SetModeRequest request = Request(v1::MODE_OPTIMIZE);
  request.set_nic("eth0");
  const auto held = scopes_.Set(kEve, request);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_THAT(held->effect(), HasSubstr("still held by rail 0 ([[scope]] of the file)"));
  scopes_.Take({});
  EXPECT_THAT(scopes_.Set(kEve, request)->effect(), HasSubstr("may do what the host's mode lets it"));
  request.set_for_s(60);
  EXPECT_EQ(scopes_.Set(kEve, request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ScopesPart, OneOfANicThatIsGoneCanBeEnded) {
  v1::SetModeRequest request = Request(v1::MODE_OBSERVE);
  request.set_nic("eth1");
  ASSERT_TRUE(scopes_.Set(kEve, request).ok());
  host_.nics.pop_back();
  EXPECT_EQ(scopes_.Set(kEve, request).status().code(), absl::StatusCode::kNotFound);
  request.set_mode(v1::MODE_OPTIMIZE);
  EXPECT_TRUE(scopes_.Set(kEve, request).ok());
  v1::StatusReply reply;
  scopes_.AddTo(reply);
  EXPECT_THAT(reply.scopes(), IsEmpty());
}

TEST_F(ScopesPart, AHeldJobIsKnownToDrainsAndItsFlowsCountWhereTheyAre) {
  const FlowKey flow = AddFlow(7, "job-x");
  EXPECT_FALSE(scopes_.HoldsAJob());
  scopes_.Take({OfJob("job-x", config::Mode::kObserve)});
  Step();
  EXPECT_TRUE(scopes_.HoldsAJob());
  EXPECT_EQ(scopes_.OnLabel("job-x"), kAllCaps);
  EXPECT_EQ(scopes_.OnLabel("job-y"), 0u);
  EXPECT_EQ(host_.flows.sent[flow].PathSlot(), CW_SLOT_NONE) << "its native port's, which nobody probes";
}

TEST_F(ScopesPart, OnlyOneRailMayDoMore) {
  scopes_.Take({{.rail = 0, .others = true, .mode = config::Mode::kProtect}});
  EXPECT_EQ(scopes_.OnNic(2), 0u);
  EXPECT_EQ(scopes_.OnNic(3), kBalanceBit);
}

TEST_F(ScopesPart, AJobsFlowsAreMarkedOnceTheJobIsKnownAndFreedWithTheScope) {
  const FlowKey held = AddFlow(7), other = AddFlow(8, "job-y");
  scopes_.Take({OfJob("job-x", config::Mode::kObserve)});
  Step();
  EXPECT_TRUE(Of(held).ActsAtAll());  // nobody has said yet whose it is
  jobs_[7] = "job-x";
  now_.Advance(kSecond);
  Step();
  EXPECT_EQ(records_.sent[held].withheld, kAllCaps);
  EXPECT_FALSE(Of(held).ActsAtAll());
  EXPECT_EQ(records_.sent[other].withheld, 0);
  EXPECT_TRUE(Of(other).ActsAtAll());
  EXPECT_EQ(host_.shared().withheld, 0u);
  scopes_.Take({});
  Step();
  EXPECT_EQ(records_.sent[held].withheld, 0);
}

// What an agent before us left in a pinned record goes with the first look.
TEST_F(ScopesPart, WhatAnEarlierAgentWithheldIsGivenBack) {
  const FlowKey flow = AddFlow(7);
  records_.sent[flow].withheld = host_.flows.sent[flow].tx.withheld = kAllCaps;
  host_.shared().withheld = kAllCaps;
  Step();
  EXPECT_EQ(records_.sent[flow].withheld, 0);
  EXPECT_EQ(host_.shared().withheld, 0u);
}

TEST_F(ScopesPart, WhatUndoesItCanBePastedIntoAShell) {
  v1::SetModeRequest request = Request(v1::MODE_OBSERVE);
  request.set_label("eve's job; reboot");
  const absl::StatusOr<v1::ActionReply> reply = scopes_.Set(kEve, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->undo(), R"(mode optimize --label 'eve'\''s job; reboot')");
}

TEST_F(ScopesPart, AnOperatorsEndsInTimeAndSaysHowToUndoIt) {
  v1::SetModeRequest request = Request(v1::MODE_OBSERVE, 600);
  request.set_nic("eth0");
  const absl::StatusOr<v1::ActionReply> reply = scopes_.Set(kEve, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->effect(), "NIC eth0 may do no more than observe (the host: optimize)");
  EXPECT_EQ(reply->undo(), "mode optimize --nic eth0");
  EXPECT_EQ(reply->reverts_s(), 600);
  EXPECT_FALSE(On().ActsAtAll());
  now_.Advance(599 * kSecond);
  scopes_.EndDue();
  EXPECT_FALSE(On().ActsAtAll());
  now_.Advance(2 * kSecond);
  scopes_.EndDue();
  EXPECT_TRUE(On().ActsAtAll());
  ASSERT_THAT(told_, Not(IsEmpty()));
  EXPECT_THAT(told_.back().text, HasSubstr("the time of observe is over"));
}

TEST_F(ScopesPart, OptimizeEndsAnOperatorsButNotTheConfigurations) {
  scopes_.Take({OfNic("eth0", config::Mode::kProtect)});
  v1::SetModeRequest request = Request(v1::MODE_OBSERVE);
  request.set_nic("eth0");
  ASSERT_TRUE(scopes_.Set(kEve, request).ok());
  scopes_.Take({OfNic("eth0", config::Mode::kProtect)});  // a reload
  EXPECT_FALSE(On().ActsAtAll());
  request.set_mode(v1::MODE_OPTIMIZE);
  ASSERT_TRUE(scopes_.Set(kEve, request).ok());
  EXPECT_EQ(scopes_.Withheld(host_.index, nullptr), kBalanceBit);
  EXPECT_FALSE(std::filesystem::exists(kPath));
}

TEST_F(ScopesPart, TheNextAgentOfTheSameBootKnowsAnOperators) {
  v1::SetModeRequest request = Request(v1::MODE_PROTECT, 60);
  request.set_rail(0);
  ASSERT_TRUE(scopes_.Set(kEve, request).ok());
  Scopes next = Make();
  ASSERT_TRUE(next.Load().ok());
  EXPECT_EQ(next.Withheld(host_.index, nullptr), kBalanceBit);
  now_.Advance(61 * kSecond);
  next.EndDue();
  EXPECT_EQ(next.Withheld(host_.index, nullptr), 0u);
  Scopes rebooted(kPath, "another boot", modes_, host_.nics, host_.pairs, host_.flows, records_, host_.mesh, now_,
                  journal_, {.label = [](const FlowKey&) { return ""; }});
  EXPECT_TRUE(absl::IsNotFound(rebooted.Load()));
}

TEST_F(ScopesPart, ARailIsTheNicThatWasMeantThoughTheTablesAreOthersNow) {
  v1::SetModeRequest request = Request(v1::MODE_PROTECT);
  request.set_rail(0);
  ASSERT_TRUE(scopes_.Set(kEve, request).ok());
  const std::string meant = host_.nics[0].config.name;
  std::swap(host_.nics[0], host_.nics[1]);
  Scopes next = Make();
  ASSERT_TRUE(next.Load().ok());
  EXPECT_EQ(next.OnNic(host_.nics[1].ifindex), kBalanceBit) << "the same device";
  EXPECT_EQ(next.OnNic(host_.nics[0].ifindex), 0u);
  v1::StatusReply status;
  next.AddTo(status);
  ASSERT_EQ(status.scopes_size(), 1);
  EXPECT_EQ(status.scopes(0).nic(), meant);
  EXPECT_FALSE(status.scopes(0).has_rail());
}

TEST_F(ScopesPart, AFileThatCannotBeReadIsNamed) {
  std::ofstream(kPath) << R"({"boot": "boot", "scopes": [{"nic": 7}]})";
  const absl::Status status = scopes_.Load();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("scopes_part.json"));
  EXPECT_EQ(scopes_.Withheld(host_.index, nullptr), 0u);
}

TEST_F(ScopesPart, WhatIsNotThereOrNotAskedForOnceIsRefused) {
  v1::SetModeRequest unknown = Request(v1::MODE_OBSERVE);
  unknown.set_nic("eth9");
  EXPECT_TRUE(absl::IsNotFound(scopes_.Set(kEve, unknown).status()));
  v1::SetModeRequest far = Request(v1::MODE_OBSERVE);
  far.set_rail(2);
  EXPECT_THAT(std::string(scopes_.Set(kEve, far).status().message()), HasSubstr("[[nic]] tables are 0 to 1"));
  v1::SetModeRequest off = Request(v1::MODE_OFF);
  off.set_nic("eth0");
  EXPECT_THAT(std::string(scopes_.Set(kEve, off).status().message()), HasSubstr("off is for the whole host"));
  v1::SetModeRequest two = Request(v1::MODE_OBSERVE);
  two.set_nic("eth0");
  two.set_label("job");
  EXPECT_TRUE(absl::IsInvalidArgument(scopes_.Set(kEve, two).status()));
  v1::SetModeRequest longer = Request(v1::MODE_OBSERVE);
  longer.set_label(std::string(65, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(scopes_.Set(kEve, longer).status()));
  v1::SetModeRequest many = Request(v1::MODE_OBSERVE);
  for (size_t i = 0; i < Scopes::kMost; ++i) {
    many.set_label("job" + std::to_string(i));
    ASSERT_TRUE(scopes_.Set(kEve, many).ok());
  }
  many.set_label("one more");
  EXPECT_TRUE(absl::IsResourceExhausted(scopes_.Set(kEve, many).status()));
}

TEST_F(ScopesPart, StatusAndWhyNameTheScopeThatHoldsAFlowBack) {
  const FlowKey flow = AddFlow(7, "job-x");
  scopes_.Take({OfNic("eth1", config::Mode::kObserve), OfJob("job-x", config::Mode::kObserve)});
  const std::vector<Scopes::Hold> holds = scopes_.HoldsOf(host_.pair(), &flow);
  ASSERT_THAT(holds, SizeIs(1));
  EXPECT_EQ(holds[0].text, "label job-x may do no more than observe ([[scope]] of the configuration)");
  EXPECT_THAT(scopes_.HoldsOf(host_.pair(), nullptr), IsEmpty());
  v1::StatusReply reply;
  scopes_.AddTo(reply);
  ASSERT_EQ(reply.scopes_size(), 2);
  EXPECT_THAT(reply.scopes(0).nics(), ElementsAre("eth1"));
  EXPECT_TRUE(reply.scopes(0).holds_back());
  (void)modes_.Set(kEve, Request(v1::MODE_OBSERVE));
  EXPECT_THAT(scopes_.HoldsOf(host_.pair(), &flow), IsEmpty());  // the host does no more
}

// The agent's own moves.
TEST_F(ScopesPart, NoFlowOfAHeldJobLeavesALossyPath) {
  const FlowKey held = AddFlow(7, "job-x"), other = AddFlow(8);
  KernelMover mover(host_.pairs, host_.flows, records_, host_.mesh, host_.names, host_.events,
                    {.in_motion = [](uint32_t) { return false; },
                     .left = [](const FlowKey&, uint32_t, control::ReturnPlace, control::ReturnPlace) {},
                     .allowed = modes_.may()});
  scopes_.Take({OfJob("job-x", config::Mode::kObserve)});
  Step();
  EXPECT_EQ(mover.Leave(host_.pair(), 1, Capability::kLoss), 1);
  EXPECT_EQ(records_.sent[held].want_slot, CW_SLOT_NONE);
  EXPECT_NE(records_.sent[other].want_slot, CW_SLOT_NONE);
  scopes_.Take({OfNic("eth0", config::Mode::kObserve)});
  records_.sent[other].want_slot = host_.flows.sent[other].tx.want_slot = CW_SLOT_NONE;
  EXPECT_EQ(mover.Leave(host_.pair(), 1, Capability::kFailover), 0);
}

}  // namespace
}  // namespace cw::agent
