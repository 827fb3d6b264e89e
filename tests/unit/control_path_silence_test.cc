// SPDX-License-Identifier: Apache-2.0
// What counts as silence of a path, and what does not.
#include "userspace/control/path_silence.h"

#include "gtest/gtest.h"

namespace cw::control {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

// Two paths, a round each 100 ms, looked at each 100 ms.
struct Pair {
  PathSilence silence;
  PathSilence::Look look{.round = 7, .interval_ns = 100 * kMs, .probed = 0b11, .peer_probes = true};
  int64_t now_ns = 5 * kSecond;
  bool answers[2] = {true, true}, peer = true, sends = true;
  int changes = 0;

  void Pass(int64_t ns, int64_t step_ns = 100 * kMs) {
    for (const int64_t end_ns = now_ns + ns; now_ns < end_ns;) {
      now_ns += step_ns;
      if (sends) ++look.round;
      for (int s = 0; s < 2; ++s) {
        if (sends && answers[s]) look.arrived[static_cast<size_t>(s)] = look.round;
      }
      if (peer) ++look.peer_round;
      changes += silence.Step(now_ns, look);
    }
  }
};

TEST(PathSilence, OnePathAndAllPathsAreSilentAndHeardAgain) {
  Pair pair;
  pair.Pass(3 * kSecond);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kHeard);
  pair.answers[1] = false;
  pair.Pass(900 * kMs);
  EXPECT_EQ(pair.silence.SilentNs(1), 0) << "too early to say so";
  pair.Pass(2 * kSecond);
  EXPECT_NEAR(static_cast<double>(pair.silence.SilentNs(1)), 2.9e9, 0.2e9);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  EXPECT_FALSE(pair.silence.AllSilent());
  pair.answers[0] = pair.peer = false;
  pair.Pass(2 * kSecond);
  EXPECT_TRUE(pair.silence.AllSilent());
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kSilent);
  const int before = pair.changes;
  pair.answers[0] = pair.answers[1] = pair.peer = true;
  pair.Pass(100 * kMs);
  EXPECT_EQ(pair.silence.SilentNs(0) + pair.silence.SilentNs(1), 0);
  EXPECT_EQ(pair.changes, before + 1);
}

TEST(PathSilence, ThePeerIsHeardThoughItsAnswersAreNot) {
  Pair pair;
  pair.Pass(kSecond);
  pair.answers[0] = pair.answers[1] = false;
  pair.Pass(3 * kSecond);
  EXPECT_TRUE(pair.silence.AllSilent());
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kHeard);
}

TEST(PathSilence, WhoNeverProbedUsIsNotSilent) {
  Pair pair;
  pair.look.peer_probes = pair.peer = false;
  pair.Pass(5 * kSecond);
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kNotKnown);
}

TEST(PathSilence, TimeInWhichNobodyLookedOrNothingWasSentIsNoSilence) {
  Pair pair;
  pair.Pass(3 * kSecond);
  pair.answers[0] = pair.answers[1] = pair.peer = false;
  pair.now_ns += 40 * kSecond;  // the agent was stopped
  pair.Pass(500 * kMs);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  pair.sends = false;
  pair.Pass(20 * kSecond);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kHeard);
  pair.sends = true;
  pair.Pass(700 * kMs, 700 * kMs);  // a look that is late by less than a second is one
  pair.Pass(700 * kMs, 700 * kMs);
  EXPECT_GT(pair.silence.SilentNs(0), 0);
}

TEST(PathSilence, WhatWasCountedBeforeNobodyLookedDoesNotGoOn) {
  Pair pair;
  pair.Pass(3 * kSecond);
  pair.answers[0] = pair.answers[1] = pair.peer = false;
  pair.Pass(900 * kMs);
  pair.now_ns += 40 * kSecond;
  pair.Pass(900 * kMs);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  EXPECT_EQ(pair.silence.peer(), PathSilence::Peer::kHeard);
  pair.Pass(2 * kSecond);
  EXPECT_NEAR(static_cast<double>(pair.silence.SilentNs(0)), 2.8e9, 0.2e9);
  pair.now_ns += 40 * kSecond;  // a silence that was known goes on
  pair.Pass(100 * kMs);
  EXPECT_GT(pair.silence.SilentNs(0), 2 * kSecond);
}

TEST(PathSilence, RoundsThatComeSeldomWantMoreTime) {
  Pair pair;
  pair.look.interval_ns = 2 * kSecond;
  pair.Pass(10 * kSecond, 2 * kSecond);
  pair.answers[0] = pair.answers[1] = false;
  pair.Pass(8 * kSecond, 2 * kSecond);
  EXPECT_EQ(pair.silence.SilentNs(0), 0);
  pair.Pass(6 * kSecond, 2 * kSecond);
  EXPECT_GT(pair.silence.SilentNs(0), 10 * kSecond);
}

TEST(PathSilence, ANewPathBeginsAnew) {
  Pair pair;
  pair.answers[1] = false;
  pair.Pass(4 * kSecond);
  EXPECT_GT(pair.silence.SilentNs(1), 0) << "it never answered";
  pair.silence.Forget(1);
  pair.Pass(500 * kMs);
  EXPECT_EQ(pair.silence.SilentNs(1), 0);
}

}  // namespace
}  // namespace cw::control
