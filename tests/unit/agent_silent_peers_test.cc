// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/silent_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/peer_watch.h"

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

TEST(PeerWatch, NamesThePeerWhenItBeginsAndWhenItEnds) {
  OnePair host;
  PeerWatch watch(
      host.pairs, [](uint32_t) { return kSecond / 10; }, host.events);
  host.pair().last_reply_ns = 9 * kSecond;
  watch.Look(10 * kSecond);
  watch.Look(13 * kSecond);
  const std::vector<telemetry::Event> begun = host.events.Take();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].severity, telemetry::Severity::kAlert);
  EXPECT_EQ(begun[0].peer, "h2");
  EXPECT_THAT(begun[0].text, testing::HasSubstr("h2 is silent: no path answered for 4.0 s"));

  host.pair().last_reply_ns = 13 * kSecond + kSecond / 2;
  watch.Look(13 * kSecond + kSecond / 2 + 1);
  EXPECT_TRUE(host.events.Take().empty()) << "it looked half a second ago";
  watch.Look(14 * kSecond);
  const std::vector<telemetry::Event> ended = host.events.Take();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].text, testing::HasSubstr("h2 answers again"));
}

}  // namespace
}  // namespace cw::agent
