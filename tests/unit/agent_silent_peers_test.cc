// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/silent_peers.h"

#include <gtest/gtest.h>

#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

TEST(SilentPeers, AreToldOnceWhenItBeginsAndOnceWhenItEnds) {
  SilentPeers peers;
  EXPECT_TRUE(peers.Step(10 * kSecond, {{"h1", 9 * kSecond, 0}}).empty());
  EXPECT_TRUE(peers.Step(12 * kSecond, {{"h1", 9 * kSecond, 0}}).empty());
  const auto begun = peers.Step(13 * kSecond, {{"h1", 9 * kSecond, 0}});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].peer, "h1");
  EXPECT_TRUE(begun[0].silent);
  EXPECT_EQ(begun[0].silent_ns, 4 * kSecond);
  EXPECT_TRUE(peers.Step(20 * kSecond, {{"h1", 9 * kSecond, 0}}).empty());
  const auto ended = peers.Step(30 * kSecond, {{"h1", 29 * kSecond, 0}});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].silent);
  EXPECT_EQ(ended[0].silent_ns, 20 * kSecond);
}

// One NIC of a host that is cut off is that NIC's matter.
TEST(SilentPeers, APeerThatAnswersByOneNicIsNotSilent) {
  SilentPeers peers;
  EXPECT_TRUE(peers.Step(60 * kSecond, {{"h1", kSecond, 0}, {"h1", 59 * kSecond, 0}}).empty());
}

TEST(SilentPeers, OneThatIsSeldomAskedOrNeverAnsweredIsWaitedFor) {
  SilentPeers peers;
  EXPECT_TRUE(peers.Step(10 * kSecond, {{"h1", kSecond, 2 * kSecond}, {"h2", 0, 0}}).empty());
  EXPECT_EQ(peers.Step(12 * kSecond, {{"h1", kSecond, 2 * kSecond}, {"h2", 0, 0}}).size(), 1u);
  EXPECT_TRUE(peers.Step(13 * kSecond, {}).empty()) << "it is no peer any more";
  EXPECT_TRUE(peers.Step(14 * kSecond, {{"h1", 13 * kSecond, 0}}).empty());
}

}  // namespace
}  // namespace cw::agent
