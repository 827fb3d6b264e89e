// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/profile/chunks.h"

#include <gtest/gtest.h>

#include <random>

namespace cw::profile {
namespace {

constexpr int64_t kBound = 10'000;

const FlowKey kFlow{.src = *Addr::Parse("10.0.0.10"), .dst = *Addr::Parse("10.0.1.10"), .dqpn = 0x21};

// What two ends stamp of one operation of `count` chunks, each 1 ms after the one before it and `delay_ns` on its way.
struct Sent {
  uint64_t operation = 1;
  uint32_t count = 4;
  int64_t delay_ns = 3 * kMs;
  uint64_t bytes = 4096;

  ChunkOp Op() const {
    return {.connection = 5,
            .coll = 6,
            .handle = operation,
            .qpn = 0x11,
            .send = true,
            .operation = operation,
            .posted = count,
            .bytes = bytes};
  }
  std::vector<ChunkTime> Posts() const {
    std::vector<ChunkTime> out;
    for (uint32_t i = 0; i < count; ++i) out.push_back({i, i * kMs, kBound});
    return out;
  }
};

class ProfileChunks : public ::testing::Test {
 protected:
  void Post(const Sent& sent, int64_t now_ns = 0) { matcher.AddPosts(kFlow, sent.Op(), sent.Posts(), now_ns); }
  void Arrive(const Sent& sent, int64_t now_ns = 0, uint32_t first = 0) {
    for (uint32_t i = first; i < sent.count; ++i) Arrive(sent, i, i * kMs + sent.delay_ns, now_ns);
  }
  void Arrive(const Sent& sent, uint32_t number, int64_t at_ns, int64_t now_ns) {
    matcher.AddArrival({kFlow, sent.operation}, sent.count, sent.bytes, {number, at_ns, 2 * kBound}, now_ns);
  }
  std::vector<ChunkMatcher::Match> Settle(int64_t now_ns = 0) { return matcher.Take(now_ns + ChunkMatcher::kSettleNs); }

  ChunkMatcher matcher;
};

TEST_F(ProfileChunks, DelaysAndTheBoundsOfBothEnds) {
  Post({});
  EXPECT_TRUE(Settle().empty()) << "nothing came";
  Arrive({}, kMs);
  EXPECT_TRUE(matcher.Take(2 * kMs).empty()) << "what contradicts may still come";
  const std::vector<ChunkMatcher::Match> matches = Settle(kMs);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].delay_ns, std::vector<int64_t>(4, 3 * kMs));
  EXPECT_EQ(matches[0].bound_ns, 3 * kBound);
  EXPECT_EQ(matches[0].qpn, 0x11u);
  EXPECT_EQ(matches[0].connection, 5u);
  EXPECT_EQ(matcher.stats().matched, 4u);
  EXPECT_TRUE(Settle(2 * kMs).empty()) << "told once";
}

TEST_F(ProfileChunks, EitherEndMayBeFirst) {
  Arrive({});
  Post({}, kMs);
  EXPECT_EQ(Settle(kMs).size(), 1u);
}

TEST_F(ProfileChunks, LostStampsCostThemselvesAlone) {
  Post({});
  Arrive({}, 2, 2 * kMs + 7 * kMs, 0);
  const auto matches = Settle();
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].delay_ns, std::vector<int64_t>{7 * kMs});
}

// The receiver's plug-in, or its agent, came in the middle: its count of requests is another one.
TEST_F(ProfileChunks, AnotherNumberOfRequestsIsUnknown) {
  Post({.count = 4});
  Arrive({.count = 3});
  EXPECT_TRUE(Settle().empty());
  EXPECT_EQ(matcher.stats().doubtful, 1u);
}

TEST_F(ProfileChunks, AnotherSizeIsUnknownWhereBothTellIt) {
  Post({.operation = 1, .bytes = 4096});
  Arrive({.operation = 1, .bytes = 4097});
  EXPECT_TRUE(Settle().empty());
  Post({.operation = 2, .bytes = 4096});
  Arrive({.operation = 2, .bytes = 0});
  EXPECT_EQ(Settle().size(), 1u);
}

TEST_F(ProfileChunks, ArrivalsThatContradictEachOtherAreUnknown) {
  Post({.operation = 1});
  Arrive({.operation = 1});
  Arrive({.operation = 1}, 3, 9 * kMs, 0);
  Post({.operation = 2});
  Arrive({.operation = 2}, 0, 3 * kMs, 0);
  Arrive({.operation = 2, .bytes = 5}, 1, 4 * kMs, 0);
  EXPECT_TRUE(Settle().empty());
  EXPECT_EQ(matcher.stats().doubtful, 2u);
}

// A sequence number that wrapped, or a job that was started again under the same name.
TEST_F(ProfileChunks, TwoOperationsOfOneNameAreUnknown) {
  Post({});
  Post({.delay_ns = 0});
  Arrive({});
  EXPECT_TRUE(Settle().empty());
  EXPECT_EQ(matcher.stats().doubtful, 1u);
}

TEST_F(ProfileChunks, AnAgentThatTellsAgainAfterItsRestartChangesNothing) {
  Post({});
  Arrive({});
  EXPECT_EQ(Settle().size(), 1u);
  Arrive({}, kMs);
  EXPECT_TRUE(Settle(kMs).empty());
  // Later it is the first word of it, and the operation is nobody's here.
  Arrive({}, 2 * ChunkMatcher::kKeepNs);
  EXPECT_TRUE(Settle(2 * ChunkMatcher::kKeepNs).empty());
}

TEST_F(ProfileChunks, WhatArrivesBeforeItsPostIsUnknownBeyondTheBoundAndZeroWithin) {
  Post({.operation = 1});
  Arrive({.operation = 1, .delay_ns = -3 * kBound});
  auto matches = Settle();
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].delay_ns, std::vector<int64_t>(4, 0));
  Post({.operation = 2});
  Arrive({.operation = 2, .delay_ns = -3 * kBound - 1});
  Post({.operation = 3});
  Arrive({.operation = 3, .delay_ns = ChunkMatcher::kMaxDelayNs + 1});
  EXPECT_TRUE(Settle().empty());
  EXPECT_EQ(matcher.stats().doubtful, 2u);
}

TEST_F(ProfileChunks, AnotherFleetTimeVoidsWhatWaits) {
  Post({.operation = 1});
  matcher.Void();
  Arrive({.operation = 1});
  Post({.operation = 2});
  Arrive({.operation = 2});
  const auto matches = Settle();
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].handle, 2u);
}

TEST_F(ProfileChunks, AnotherFlowsOperationOfTheSameNameIsAnother) {
  Post({});
  FlowKey other = kFlow;
  other.dqpn = 0x22;
  for (uint32_t i = 0; i < 4; ++i) matcher.AddArrival({other, 1}, 4, 4096, {i, 0, 0}, 0);
  EXPECT_TRUE(Settle().empty());
}

TEST_F(ProfileChunks, WhatNobodyAnswersExpires) {
  Post({});
  Arrive({.operation = 2});
  EXPECT_EQ(matcher.size(), 2u);
  (void)matcher.Take(ChunkMatcher::kKeepNs + 1);
  EXPECT_EQ(matcher.size(), 0u);
  EXPECT_EQ(matcher.stats().unanswered, 1u);
}

TEST_F(ProfileChunks, StaysBoundedWhateverAPeerSends) {
  std::mt19937_64 random(7);
  for (uint64_t i = 0; i < 4 * ChunkMatcher::kMaxToldByPeer; ++i) {
    matcher.AddArrival({kFlow, i}, 1, random(),
                       {static_cast<uint32_t>(random()), static_cast<int64_t>(random() / 4), 0}, 0);
  }
  EXPECT_EQ(matcher.size(), ChunkMatcher::kMaxToldByPeer);
  for (uint64_t i = 0; i < 1000; ++i) matcher.AddArrival({kFlow, 1}, 1, 1, {static_cast<uint32_t>(i), 0, 0}, 0);
  // It costs another peer nothing, and ours own operations neither.
  FlowKey other = kFlow;
  other.dst = *Addr::Parse("10.0.1.11");
  matcher.AddPosts(other, Sent{.operation = 1u << 30}.Op(), Sent{}.Posts(), 0);
  for (uint32_t i = 0; i < 4; ++i) matcher.AddArrival({other, 1u << 30}, 4, 4096, {i, i * kMs, 0}, 0);
  EXPECT_EQ(Settle().size(), 1u);
  for (uint64_t i = 0; i < 2 * ChunkMatcher::kMaxOwn; ++i) Post({.operation = (1u << 20) + i});
  EXPECT_LE(matcher.size(), ChunkMatcher::kMaxOwn + ChunkMatcher::kMaxTold);
  EXPECT_GT(matcher.stats().dropped, 0u);
  (void)matcher.Take(ChunkMatcher::kKeepNs + 1);
  EXPECT_EQ(matcher.size(), 0u);
}

TEST(ProfileChunkNames, AreTheSameInAllReleases) {
  EXPECT_EQ(OperationName(0xc0ffee, "AllReduce", 7, 1), 0x39f66e3a779b50e4u);
  const uint64_t name = OperationName(1, "AllReduce", 2, 3);
  EXPECT_NE(name, OperationName(2, "AllReduce", 2, 3));
  EXPECT_NE(name, OperationName(1, "AllGather", 2, 3));
  EXPECT_NE(name, OperationName(1, "AllReduce", 3, 3));
  EXPECT_NE(name, OperationName(1, "AllReduce", 2, 4));
}

}  // namespace
}  // namespace cw::profile
