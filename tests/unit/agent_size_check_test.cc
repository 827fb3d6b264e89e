// SPDX-License-Identifier: Apache-2.0
//
// Packets too large for a path or a NIC, between two agents' parts without a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/paths/size_check.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Sizes : public ::testing::Test {
 protected:
  Sizes() {
    (void)host_.mesh.slots(host_.index).SetPaths({50000, 50001}, {}, 0);
    for (uint8_t s : {0, 1}) host_.shared().slot[s].state = CW_SLOT_UP;
    host_.pair().last_reply_ns = 1;
    host_.pair().active = true;
    check_.LookAtMtus(now_ns_);
  }

  // The peer's agent answers what arrives: of the second path, packets up to most_.
  absl::Status OnQuestion(const probe::SizeReport& question, uint16_t port) {
    ++asked_;
    if (gone_) return absl::OkStatus();
    if (question.bytes > (port == 50001 ? most_ : most_of_first_)) return absl::OkStatus();
    probe::SizeReport answer = question;
    answer.answer = true;
    Hear(answer);
    return absl::OkStatus();
  }
  void Hear(probe::SizeReport report) {
    report.mtu = peer_mtu_;
    report.nic = "eth7";
    check_.OnReport(host_.pair(), report, now_ns_);
  }
  void Run(int64_t ns) {
    for (const int64_t end_ns = now_ns_ + ns; now_ns_ < end_ns; now_ns_ += kSecond / 10) {
      check_.Step(now_ns_);
      if (now_ns_ % kSecond == 0) check_.LookAtMtus(now_ns_);
    }
  }

  OnePair host_;
  uint32_t most_ = 9000, most_of_first_ = 9000, mtu_ = 4200, peer_mtu_ = 4200;
  int asked_ = 0;
  bool gone_ = false;
  const probe::Hops hops_[2] = {{probe::TestAddr("10.9.0.1"), probe::TestAddr("10.9.0.2")},
                                {probe::TestAddr("10.9.0.1"), probe::TestAddr("10.9.0.3")}};
  int64_t now_ns_ = kSecond;
  SizeCheck check_{host_.pairs,
                   host_.nics,
                   host_.flows,
                   host_.mesh,
                   host_.mail,
                   host_.events,
                   {.send = [this](uint32_t, const probe::SizeReport& question,
                                   uint16_t port) { return OnQuestion(question, port); },
                    .mtu_of = [this](const std::string&) { return absl::StatusOr<uint32_t>(mtu_); },
                    .hops = [this](uint32_t, uint8_t slot) { return slot < 2 ? &hops_[slot] : nullptr; },
                    .host = "h1"}};
};

TEST_F(Sizes, APeerThatDoesNotAnswerIsAskedNothingButItsMtu) {
  Run(25 * kSecond);
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(host_.mail.Take<probe::SizeReport>(), SizeIs(3)) << "one in ten seconds";
  EXPECT_THAT(host_.events.Take(), IsEmpty());
}

TEST_F(Sizes, TheSizeAndThePathAreNamedAndItIsOverWhenPacketsArrive) {
  Hear({});
  Run(10 * kSecond);
  EXPECT_THAT(host_.events.Take(), IsEmpty());
  most_ = 1500;
  Run(5 * kSecond);
  auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].text,
            "packets above 1500 bytes do not arrive on path 1 to h2, lost on the way to 10.9.0.3 or behind it");
  EXPECT_EQ(events[0].severity, telemetry::Severity::kAlert);
  EXPECT_EQ(events[0].slot, 1);
  most_ = 9000;
  Run(5 * kSecond);
  events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].text, "packets of 4160 bytes arrive on path 1 to h2 again");
}

// Nobody can say any more whether it is still so.
TEST_F(Sizes, WhatWasFoundIsForgottenWhenThePeersAgentIsGone) {
  Hear({});
  most_ = 1500;
  Run(5 * kSecond);
  ASSERT_THAT(host_.events.Take(), SizeIs(1));
  gone_ = true;
  Run(SizeCheck::kHeardNs + kSecond);
  const auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].text, HasSubstr("path 1 to h2 is not known any more"));
  EXPECT_EQ(host_.pair().slot[1].size.arrives(), 0u);
}

// Its flows stand because of it, so the pair looks idle.
TEST_F(Sizes, AllPathsAreNamedWithinSecondsThoughNothingIsSentAnyMore) {
  Hear({});
  Run(3 * kSecond);
  most_ = most_of_first_ = 1500;
  host_.pair().active = false;
  SizeCheck::Hurry(host_.pair(), 1, now_ns_);  // its data is not acknowledged
  Run(5 * kSecond);
  EXPECT_THAT(host_.events.Take(), SizeIs(2));
}

// Its own flows come by the same links, and this end sends nothing that would show it.
TEST_F(Sizes, AnIdleEndLooksAtOnceWhenThePeerSearches) {
  Hear({});
  host_.pair().active = false;
  Run(3 * kSecond);
  most_ = most_of_first_ = 1500;
  Hear({.slot = 3, .bytes = 2048, .token = 7});
  Run(3 * kSecond);
  EXPECT_THAT(host_.events.Take(), SizeIs(2));
}

TEST_F(Sizes, NoSwitchIsNamedWhereNoPathPasses) {
  Hear({});
  Run(3 * kSecond);
  most_ = most_of_first_ = 1500;
  Run(5 * kSecond);
  const auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].text, "packets above 1500 bytes do not arrive on path 0 to h2");
}

TEST_F(Sizes, TheSmallerNicIsNamedAndNoPath) {
  Hear({});
  Run(3 * kSecond);
  peer_mtu_ = 1500;
  most_ = 1500;
  Run(5 * kSecond);
  auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].text, "h2's eth7 has MTU 1500, h1's eth0 4200: packets above 1500 bytes do not pass");
  EXPECT_EQ(host_.pair().slot[1].size.arrives(), 0u);
  peer_mtu_ = 4200;
  most_ = 9000;
  Run(5 * kSecond);
  events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].text, HasSubstr("fit each other again"));
  EXPECT_THAT(host_.pair().mtu_trouble, IsEmpty());
  peer_mtu_ = 9000;
  Run(5 * kSecond);
  EXPECT_THAT(host_.events.Take(), IsEmpty()) << "RoCE has no larger packets";
}

TEST_F(Sizes, QueuePairsWithLargerPacketsThanBothNicsAreNamed) {
  mtu_ = peer_mtu_ = most_ = 1500;
  host_.AddSent(7).tx.flow.mtu = 4096;
  Hear({});
  Run(3 * kSecond);
  const auto events = host_.events.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].text, HasSubstr("have path MTU 4096"));
}

TEST_F(Sizes, AQuestionIsAnsweredWithOurMtu) {
  check_.OnReport(host_.pair(), {.slot = 3, .bytes = 4160, .token = 9, .mtu = 4200, .nic = "eth7"}, now_ns_);
  const auto answers = host_.mail.Take<probe::SizeReport>();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0],
            (probe::SizeReport{.answer = true, .slot = 3, .bytes = 4160, .token = 9, .mtu = 4200, .nic = "eth0"}));
}

TEST_F(Sizes, AnAgentThatIsLateSaysNothing) {
  Hear({});
  most_ = 1500;
  for (int i = 0; i < 100; ++i, now_ns_ += 300'000'000) check_.Step(now_ns_);
  EXPECT_THAT(host_.events.Take(), IsEmpty());
}

}  // namespace
}  // namespace cw::agent
