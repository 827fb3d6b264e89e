// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/silent_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/peer_watch.h"

namespace cw::agent {
namespace {

// So long silent after having answered.
SilentPeers::Seen Silent(const std::string& peer, int64_t silent_ns, const std::string& nics = "eth0 to 10.0.0.1") {
  return {.peer = peer, .nics = nics, .silent_ns = silent_ns, .answered = true};
}

TEST(SilentPeers, AreReportedOnceWhenItBeginsAndOnceWhenItEnds) {
  SilentPeers peers;
  EXPECT_TRUE(peers.Step(10 * kSecond, {Silent("h1", 0)}).empty());
  EXPECT_TRUE(peers.Step(12 * kSecond, {Silent("h1", 3 * kSecond)}).empty());
  const auto begun = peers.Step(13 * kSecond, {Silent("h1", 4 * kSecond)});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].peer, "h1");
  EXPECT_EQ(begun[0].nics, "");
  EXPECT_TRUE(begun[0].silent);
  EXPECT_EQ(begun[0].silent_ns, 4 * kSecond);
  EXPECT_TRUE(peers.Step(20 * kSecond, {Silent("h1", 11 * kSecond)}).empty());
  const auto ended = peers.Step(30 * kSecond, {Silent("h1", 0)});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].silent);
  EXPECT_EQ(ended[0].silent_ns, 21 * kSecond);
}

// A rail that is dead with its carrier up: the host answers by its other NICs.
TEST(SilentPeers, APairOfNicsThatIsSilentIsReportedThoughTheHostAnswers) {
  SilentPeers peers;
  const auto begun = peers.Step(60 * kSecond, {Silent("h1", 50 * kSecond, "eth1 to 10.0.1.1"), Silent("h1", 0)});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].nics, "eth1 to 10.0.1.1");
  const auto all =
      peers.Step(70 * kSecond, {Silent("h1", 60 * kSecond, "eth1 to 10.0.1.1"), Silent("h1", 4 * kSecond)});
  ASSERT_EQ(all.size(), 1u) << "that the NIC answers again is not so";
  EXPECT_EQ(all[0].nics, "");
}

TEST(SilentPeers, OneThatNeverAnsweredOrIsNoPeerAnyMoreIsNotReported) {
  SilentPeers peers;
  SilentPeers::Seen never = Silent("h2", 60 * kSecond);
  never.answered = false;
  EXPECT_TRUE(peers.Step(60 * kSecond, {never}).empty());
  EXPECT_EQ(peers.Step(61 * kSecond, {Silent("h1", 9 * kSecond)}).size(), 1u);
  EXPECT_TRUE(peers.Step(62 * kSecond, {}).empty()) << "it is no peer any more";
}

// Probes go out, and nothing of them arrives.
class PeerWatchTest : public testing::Test {
 protected:
  void Pass(int64_t seconds, bool answers) {
    for (const int64_t end_ns = now_ns_ + seconds * kSecond; now_ns_ < end_ns;) {
      now_ns_ += kSecond / 10;
      look_.arrived[0] += answers;
      ++look_.round;
      host_.pair().path_silence.Step(now_ns_, look_);
      watch_.Look(now_ns_);
    }
  }

  OnePair host_;
  uint32_t unseen_ = 0;  // rounds
  PeerWatch watch_{host_.pairs, host_.nics, host_.events, [this](const PairState&) { return unseen_; }};
  control::PathSilence::Look look_{.round = 1, .interval_ns = kSecond / 10, .probed = 1};
  int64_t now_ns_ = 5 * kSecond;
};

TEST_F(PeerWatchTest, NamesThePeerWhenItBeginsAndWhenItEnds) {
  host_.pair().last_reply_ns = kSecond;
  Pass(5, true);
  EXPECT_TRUE(host_.events.Take().empty());
  Pass(6, false);
  const std::vector<telemetry::Event> begun = host_.events.Take();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].severity, telemetry::Severity::kAlert);
  EXPECT_EQ(begun[0].peer, "h2");
  EXPECT_THAT(begun[0].text, testing::HasSubstr("h2 is silent: no path answered for"));
  Pass(2, true);
  const std::vector<telemetry::Event> ended = host_.events.Take();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(ended[0].text, testing::HasSubstr("h2 answers again"));
}

// A route, a neighbour entry or a firewall of this host: the peer's hardware is not to blame.
TEST_F(PeerWatchTest, SaysThatProbesDoNotLeaveThisHost) {
  host_.pair().last_reply_ns = kSecond;
  Pass(5, true);
  unseen_ = 3;  // on their path to the program
  Pass(2, true);
  EXPECT_FALSE(watch_.DoNotLeave(host_.index));
  unseen_ = 40;
  Pass(6, false);
  EXPECT_TRUE(watch_.DoNotLeave(host_.index));
  const std::vector<telemetry::Event> begun = host_.events.Take();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_THAT(begun[0].text, testing::HasSubstr("probes do not leave this host"));
  unseen_ = 0;
  Pass(2, true);
  EXPECT_FALSE(watch_.DoNotLeave(host_.index));
}

// The peer's agent said so itself.
TEST_F(PeerWatchTest, APeerWhoseNicIsNotMeasuredIsNotSilent) {
  host_.pair().last_reply_ns = kSecond;
  Pass(5, true);
  host_.pair().peer_blind_ns = now_ns_;
  Pass(10, false);
  EXPECT_TRUE(host_.events.Take().empty());
}

// It has seen nothing, so it says nothing of anybody.
TEST_F(PeerWatchTest, AnAgentThatWasStoppedAccusesNobody) {
  host_.pair().last_reply_ns = kSecond;
  Pass(5, true);
  now_ns_ += 40 * kSecond;
  Pass(2, true);
  EXPECT_TRUE(host_.events.Take().empty());
}

}  // namespace
}  // namespace cw::agent
