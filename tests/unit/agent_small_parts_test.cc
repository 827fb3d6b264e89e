// SPDX-License-Identifier: Apache-2.0
//
// Small parts of the agent: its loop, its meter, what the configuration's words mean to the rules, and paths that no
// flow shall be put on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/no_descriptors.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/certificates.h"
#include "userspace/agent/host_net.h"
#include "userspace/agent/loop.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/resource_meter.h"
#include "userspace/agent/rules_of_config.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class LoopPart : public ::testing::Test {
 protected:
  LoopPart() : loop_(*Loop::Create()) {}
  std::unique_ptr<Loop> loop_;
  std::vector<std::string> done_;
};

TEST_F(LoopPart, WorkOfOtherThreadsIsDoneInItsOrderAndAnswered) {
  std::thread runs([this] { loop_->Run(); });
  loop_->Post([this] { done_.push_back("posted"); });
  const absl::StatusOr<int> answer = loop_->Call<int>([this] {
    done_.push_back("called");
    return absl::StatusOr<int>(7);
  });
  loop_->Stop();
  runs.join();
  EXPECT_EQ(*answer, 7);
  EXPECT_THAT(done_, ElementsAre("posted", "called"));
  EXPECT_TRUE(absl::IsUnavailable(loop_->Call<int>([] { return absl::StatusOr<int>(1); }).status()))
      << "it has ended, and says so";
}

TEST_F(LoopPart, WhatIsDueFirstIsDoneFirstAndADescriptorWhenItIsReadable) {
  const int fd = eventfd(1, EFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(loop_
                  ->AddFd(fd,
                          [this, fd] {
                            uint64_t value = 0;
                            EXPECT_EQ(read(fd, &value, sizeof(value)), 8);
                            done_.push_back("readable");
                          })
                  .ok());
  loop_->After(absl::Milliseconds(30), [this] {
    done_.push_back("later");
    loop_->Stop();
  });
  loop_->After(absl::Milliseconds(5), [this] { done_.push_back("soon"); });
  loop_->Run();
  close(fd);
  EXPECT_THAT(done_, UnorderedElementsAre("readable", "soon", "later"));
  EXPECT_LT(std::find(done_.begin(), done_.end(), "soon"), std::find(done_.begin(), done_.end(), "later"));
}

TEST_F(LoopPart, APeriodCanBeChangedWhileItRuns) {
  int timer = -1, ticks = 0;
  ASSERT_TRUE(loop_
                  ->AddTimer(
                      absl::Hours(1),
                      [&] {
                        if (++ticks == 2) loop_->Stop();
                      },
                      &timer)
                  .ok());
  loop_->SetPeriod(timer, absl::Milliseconds(2));
  loop_->Run();
  EXPECT_EQ(ticks, 2);
}

TEST(ResourceMeterPart, SharesAreOfTheLastTenSeconds) {
  ResourceMeter meter;
  meter.Sample(0, 0, 0);
  EXPECT_EQ(meter.ProcessPercent(), 0) << "one reading says nothing";
  meter.Sample(kSecond, kSecond / 2, kSecond / 4);
  EXPECT_DOUBLE_EQ(meter.ProcessPercent(), 50);
  EXPECT_DOUBLE_EQ(meter.TotalPercent(), 75);
  for (int s = 2; s <= 12; ++s) meter.Sample(s * kSecond, kSecond / 2, kSecond / 4);
  EXPECT_DOUBLE_EQ(meter.TotalPercent(), 0) << "what was before is forgotten";
  EXPECT_GT(ResourceMeter::ProcessCpuNs(), 0);
  EXPECT_GT(ResourceMeter::RssBytes(), 1u << 20);
}

TEST(RulesOfConfig, ACapabilityOverridesTheMode) {
  config::Config config;
  config.mode = config::Mode::kProtect;
  config.steering.allow.failover = config::AllowSetting::kObserve;
  const Allowed allowed = AllowedBy(config);
  EXPECT_EQ(allowed.of(Capability::kFailover), Allow::kObserve);
  EXPECT_EQ(allowed.of(Capability::kLoss), Allow::kAct);
  EXPECT_EQ(allowed.of(Capability::kBalance), Allow::kObserve);
}

TEST(RulesOfConfig, NumbersComeInTheUnitsOfTheRules) {
  config::SteeringConfig steering;
  steering.queueing_floor = absl::Microseconds(30);
  steering.queueing_factor = 3;
  steering.target_factor = 0.5;
  EXPECT_EQ(ContentionRulesOf(steering).queue_floor_ns, 30'000);
  EXPECT_EQ(ContentionRulesOf(steering).better_than, 0.5);
  EXPECT_EQ(CauseRulesOf(steering).queue_over_base, 3);
  config::ProbeConfig probe;
  probe.active_interval = absl::Milliseconds(2);
  probe.budget_pps = 500;
  EXPECT_EQ(CadenceOf(probe).active_interval_ns, 2 * kMs);
  EXPECT_EQ(CadenceOf(probe).budget_pps, 500);
  const int all = ProcessorsOf(probe);
  EXPECT_GE(all, 1) << "all of the host's";
  probe.cpus = "2,4-5";
  EXPECT_EQ(ProcessorsOf(probe), std::min(3, all));
  EXPECT_EQ(HalfDeadFactor(absl::Milliseconds(10)), 5u);
  EXPECT_EQ(HalfDeadFactor(absl::Microseconds(250)), 20u) << "three misses are 15 ms at least";
}

class DampingPart : public ::testing::Test {
 protected:
  DampingPart() { host_.AddPaths({100, 101, 102}); }
  OnePair host_;
  ManualClock clock_{1000 * kSecond};
  LinkFlaps links_{testing::TempDir() + "/damping_no_outages.json",
                   "boot",
                   host_.pairs,
                   host_.mesh,
                   clock_,
                   clock_,
                   host_.events,
                   {}};
  std::vector<uint16_t> told_;
  Damping damping_{host_.pairs, host_.mesh, links_, clock_,
                   [this](uint32_t, uint16_t slots) { told_.push_back(slots); }};
};

TEST_F(DampingPart, APathThatFlapsTakesNoFlowUntilItsPenaltyIsGone) {
  PairState& pair = host_.pair();
  for (int flap = 0; flap < 10; ++flap) {
    pair.slot[1].damping.Down(clock_.NowNs());
    host_.shared().slot[1].state = CW_SLOT_DEAD;
    damping_.Update(pair);
    host_.shared().slot[1].state = CW_SLOT_UP;
    clock_.Advance(kSecond / 10);
    damping_.UpdateAll();
  }
  EXPECT_EQ(pair.damped, 1u << 1);
  ASSERT_FALSE(told_.empty());
  EXPECT_EQ(told_.back(), 1u << 1);
  clock_.Advance(3600 * kSecond);
  damping_.Update(pair);
  EXPECT_EQ(pair.damped, 0);
  EXPECT_EQ(told_.back(), 0);
}

TEST_F(DampingPart, DrainedPathsAndBlindPairsTakeNoneEitherAndEachChangeIsToldOnce) {
  PairState& pair = host_.pair();
  pair.drained = 1u << 2;
  damping_.Publish(pair);
  damping_.Publish(pair);
  EXPECT_THAT(told_, ElementsAre(1u << 2));
  pair.blind = true;
  damping_.Publish(pair);
  EXPECT_EQ(told_.back(), 0xffff);
}

TEST_F(DampingPart, OnlyPathsThatMayBeJudgedAreJudged) {
  host_.shared().slot[0].state = CW_SLOT_SUSPECT;
  host_.shared().slot[1].state = CW_SLOT_DEAD;
  host_.shared().slot[3].state = CW_SLOT_NEW;
  EXPECT_EQ(JudgedSlots(host_.shared()), (1u << 0) | (1u << 2));
}

TEST(HostNet, LoopbackIsTheMachinesOwn) {
  const absl::StatusOr<HostNet> net = ReadHostNet();
  ASSERT_TRUE(net.ok()) << net.status();
  const HostLink* loopback = net->LinkCalled("lo");
  ASSERT_NE(loopback, nullptr);
  EXPECT_EQ(loopback->ifindex, 1u);
  EXPECT_TRUE(loopback->loopback);
  EXPECT_EQ(net->LinkAt(1), loopback);
  EXPECT_TRUE(net->HasAddressOn(1, *Addr::Parse("127.0.0.1")));
  EXPECT_FALSE(net->HasAddressOn(1, *Addr::Parse("10.9.9.9")));
  EXPECT_EQ(net->LinkCalled("no-such-nic"), nullptr);
}

TEST(HostNet, WithoutADescriptorNothingIsKnown) {
  const NoDescriptors none;
  ASSERT_TRUE(none.none_left());
  EXPECT_TRUE(absl::IsUnavailable(ReadHostNet().status()));
}

TEST(Certificates, NothingIsLookedAtWhereNobodyListensAndWhatIsMissingIsAProblem) {
  config::ApiConfig api;
  EXPECT_FALSE(LookAtCertificates(api).has_value());
  api.listen = {"127.0.0.1:9478"};
  api.tls_cert = api.tls_key = api.tls_ca = testing::TempDir() + "/no-such-certificate";
  const auto facts = LookAtCertificates(api);
  ASSERT_TRUE(facts.has_value());
  EXPECT_TRUE(facts->files.empty());
  EXPECT_NE(facts->problem, "");
}

}  // namespace
}  // namespace cw::agent
