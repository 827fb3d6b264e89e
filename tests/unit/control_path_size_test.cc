// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/path_size.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/unit/time_units.h"

namespace cw::control {
namespace {

constexpr uint32_t kFull = 4160;

// A path that is looked at ten times a second; what is asked is answered at once, where `arrives` says so.
struct AskedPath {
  PathSize size;
  std::function<bool(uint32_t bytes)> arrives = [](uint32_t) { return true; };
  int64_t now_ns = kSecond;
  uint64_t packets = 0;

  // How long until the verdict is another one; −1: it is the same all the time.
  int64_t For(int64_t ns, uint32_t full = kFull) {
    const uint32_t before = size.arrives();
    for (const int64_t end_ns = now_ns + ns; now_ns < end_ns; now_ns += kSecond / 10) {
      if (size.Due(now_ns, false)) {
        for (const uint32_t bytes : size.Ask(full, now_ns)) {
          ++packets;
          if (arrives(bytes)) size.Answered(size.token(), bytes);
        }
      }
      if (size.arrives() != before) return ns - (end_ns - now_ns);
    }
    return -1;
  }
  void Above(uint32_t most) {
    arrives = [most](uint32_t bytes) { return bytes <= most; };
  }
};

TEST(PathSize, RoceIsAsLargeAsTheMtuHasRoomFor) {
  EXPECT_EQ(RocePacketBytes(4200, true), 4160u);
  EXPECT_EQ(RocePacketBytes(9000, true), 4160u);
  EXPECT_EQ(RocePacketBytes(4160, true), 4160u);
  EXPECT_EQ(RocePacketBytes(4160, false), 2048u + 84);
  EXPECT_EQ(RocePacketBytes(1500, true), 1024u + 64);
  EXPECT_EQ(RocePacketBytes(319, true), 0u);
  EXPECT_EQ(RocePacketBytes(0, true), 0u);
}

TEST(PathSize, IsFoundToTheByteWithinFiveSecondsAndGoesWhenPacketsPass) {
  for (const uint32_t most : {1500u, 1499u, 2000u, 4000u, 4159u, 577u, 1280u}) {
    AskedPath run;
    EXPECT_EQ(run.For(20 * kSecond), -1);
    run.Above(most);
    EXPECT_LE(run.For(20 * kSecond), 5 * kSecond) << most;
    EXPECT_EQ(run.size.arrives(), most);
    EXPECT_EQ(run.size.lost(), most + 1);
    EXPECT_EQ(run.For(20 * kSecond), -1);
    run.Above(kFull);
    EXPECT_GE(run.For(20 * kSecond), 0);
    EXPECT_EQ(run.size.arrives(), 0u);
  }
}

TEST(PathSize, AnotherSizeIsFoundAfterTheFirst) {
  AskedPath run;
  run.Above(1500);
  run.For(10 * kSecond);
  run.Above(1400);
  EXPECT_GE(run.For(30 * kSecond), 0);
  EXPECT_EQ(run.size.arrives(), 1400u);
}

TEST(PathSize, OnePacketEveryTwoSecondsWhereAllIsWell) {
  AskedPath run;
  run.For(100 * kSecond);
  EXPECT_LE(run.packets, 51u);
}

TEST(PathSize, SaysNothingWhereNothingIsAnswered) {
  AskedPath run;
  run.arrives = [](uint32_t) { return false; };
  EXPECT_EQ(run.For(100 * kSecond), -1);
  run.arrives = [](uint32_t bytes) { return bytes >= 100; };  // the smallest alone is lost
  run.For(10 * kSecond);
  EXPECT_EQ(run.size.arrives(), 0u);
}

// Losses of any size: an hour of each.
TEST(PathSize, SaysNothingOfAPathThatLosesAnyPacket) {
  std::mt19937 random(7);
  for (const double loss : {0.01, 0.1, 0.3, 0.6, 0.9}) {
    AskedPath run;
    run.arrives = [&](uint32_t) { return std::uniform_real_distribution<>()(random) >= loss; };
    EXPECT_EQ(run.For(3600 * kSecond), -1) << loss;
  }
}

TEST(PathSize, WhatALateAgentAskedIsVoid) {
  PathSize size;
  int64_t now_ns = kSecond;
  for (int i = 0; i < 200; ++i, now_ns += kSecond / 2) {
    if (!size.Due(now_ns, true)) continue;
    for (const uint32_t bytes : size.Ask(kFull, now_ns)) {
      if (bytes <= 1500) size.Answered(size.token(), bytes);
    }
  }
  EXPECT_EQ(size.arrives(), 0u);
}

// Others come first: the rounds are as many.
TEST(PathSize, WhatIsDueMayBeAskedLater) {
  AskedPath run;
  run.Above(1500);
  int looks = 0;
  uint64_t rounds = 0;
  for (; run.size.arrives() == 0 && looks < 1000; ++looks, run.now_ns += kSecond / 10) {
    if (!run.size.Due(run.now_ns, false) || looks % 7 != 0) continue;
    ++rounds;
    for (const uint32_t bytes : run.size.Ask(kFull, run.now_ns)) {
      if (run.arrives(bytes)) run.size.Answered(run.size.token(), bytes);
    }
  }
  EXPECT_EQ(run.size.arrives(), 1500u);
  EXPECT_GE(rounds, 4u);
}

TEST(PathSize, AnAnswerToAnEarlierQuestionIsNone) {
  PathSize size;
  ASSERT_TRUE(size.Due(kSecond, false));
  size.Ask(kFull, kSecond);
  size.Answered(size.token() - 1, kFull);
  size.Answered(size.token(), 77);
  EXPECT_TRUE(size.Due(2 * kSecond, false)) << "a round follows";
  size.Ask(kFull, 2 * kSecond);
  size.Answered(size.token(), kFull);
  EXPECT_FALSE(size.Due(3 * kSecond, false));
  EXPECT_TRUE(size.resting());
  size.Hurry(3 * kSecond);
  EXPECT_TRUE(size.Due(3 * kSecond, false));
}

TEST(PathSize, ASmallerQuestionEndsWhatTheLargerOneFound) {
  AskedPath run;
  run.Above(1500);
  run.For(10 * kSecond);
  ASSERT_EQ(run.size.arrives(), 1500u);
  EXPECT_GE(run.For(10 * kSecond, 1088), 0);
  EXPECT_EQ(run.size.arrives(), 0u);
}

}  // namespace
}  // namespace cw::control
