// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/returns.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cw::control {
namespace {

FlowKey Flow(uint32_t qpn) { return {.src = Addr::FromV4(1), .dst = Addr::FromV4(2), .dqpn = qpn}; }

// A host whose flows do as they are asked, with the next step.
struct Host {
  explicit Host(int flow_count, int64_t step_ns = kSecond) : returns(step_ns) {
    for (int i = 0; i < flow_count; ++i) flows.push_back({.key = Flow(static_cast<uint32_t>(i)), .at = home});
  }
  void Fail() {
    usable = false;
    for (ReturnFlow& flow : flows) {
      if (flow.at != home) continue;
      returns.Left(flow.key, 0, home, away);
      flow.at = away;
      flow.wish = kSlotNone;
    }
  }
  // Flows sent back, and wishes taken back.
  std::pair<int, int> Step(int64_t now_ns, bool moves = true) {
    std::pair<int, int> count;
    for (const ReturnAction& action : returns.Step(now_ns, flows, [&](uint32_t, ReturnPlace) { return usable; })) {
      for (ReturnFlow& flow : flows) {
        if (flow.key != action.flow) continue;
        if (action.take_back) {
          ++count.second;
          flow.wish = kSlotNone;
        } else {
          ++count.first;
          flow.wish = action.to.slot;
          if (moves) Make(flow);
        }
      }
    }
    return count;
  }
  void Make(ReturnFlow& flow) {
    flow.at = home;
    flow.wish = kSlotNone;
  }

  const ReturnPlace home{.slot = 2, .port = 50002}, away{.slot = 1, .port = 50001};
  Returns returns;
  std::vector<ReturnFlow> flows;
  bool usable = true;
};

TEST(Returns, OneThenTwiceAsManyEachStep) {
  Host host(20);
  host.Fail();
  EXPECT_EQ(host.Step(1 * kSecond), std::pair(0, 0)) << "it is not back yet";
  host.usable = true;
  std::vector<int> per_step;
  for (int step = 0; step < 6; ++step) {
    int sent = 0;
    for (int tick = 0; tick < 50; ++tick) sent += host.Step((10 + step) * kSecond + tick * kSecond / 50).first;
    per_step.push_back(sent);
  }
  EXPECT_EQ(per_step, (std::vector{0, 1, 2, 4, 8, 5})) << "and the rest";
  EXPECT_EQ(host.Step(60 * kSecond), std::pair(0, 0));
  EXPECT_EQ(host.returns.away(), 0u);
}

TEST(Returns, StopAndBeginAnewWhenThePathFailsAgain) {
  Host host(20);
  host.Fail();
  host.usable = true;
  host.Step(10 * kSecond);
  EXPECT_EQ(host.Step(11 * kSecond).first, 1);
  EXPECT_EQ(host.Step(12 * kSecond, /*moves=*/false).first, 2) << "two are asked, and wait for a pause";
  host.Fail();
  EXPECT_EQ(host.Step(12 * kSecond + 1), std::pair(0, 2)) << "what waits is taken back";
  EXPECT_EQ(host.returns.away(), 20u);
  host.usable = true;
  EXPECT_EQ(host.Step(20 * kSecond).first, 0);
  EXPECT_EQ(host.Step(21 * kSecond).first, 1) << "from one again";
}

TEST(Returns, LeaveAloneWhatOthersMoved) {
  Host host(3);
  host.Fail();
  host.usable = true;
  host.flows[0].free = false;                     // an operator's
  host.flows[1].at = {.slot = 5, .port = 50005};  // moved since
  host.flows[2].wish = 7;                         // about to be
  for (int second = 10; second < 20; ++second) EXPECT_EQ(host.Step(second * kSecond).first, 0);
  EXPECT_EQ(host.returns.away(), 0u);
}

TEST(Returns, ASecondFailureKeepsTheFirstHome) {
  Host host(1);
  host.Fail();
  const ReturnPlace third{.slot = 3, .port = 50003};
  host.returns.Left(host.flows[0].key, 0, host.away, third);
  host.flows[0].at = third;
  host.usable = true;
  host.Step(10 * kSecond);
  EXPECT_EQ(host.Step(11 * kSecond).first, 1);
  EXPECT_EQ(host.flows[0].at, host.home);
}

// A forced wish (a lossy path is left) is told of before it is made.
TEST(Returns, AFlowThatIsAboutToLeaveCountsAsGone) {
  Host host(1);
  host.returns.Left(host.flows[0].key, 0, host.home, host.away);
  host.flows[0].wish = host.away.slot;
  host.usable = false;
  EXPECT_EQ(host.Step(kSecond).first, 0);
  EXPECT_EQ(host.returns.away(), 1u);
  host.flows[0].at = host.away;
  host.flows[0].wish = kSlotNone;
  host.usable = true;
  host.Step(10 * kSecond);
  EXPECT_EQ(host.Step(11 * kSecond).first, 1);
}

TEST(Returns, WithoutAStepNothingReturns) {
  Host host(3, 0);
  host.Fail();
  host.usable = true;
  for (int second = 10; second < 20; ++second) EXPECT_EQ(host.Step(second * kSecond).first, 0);
}

}  // namespace
}  // namespace cw::control
