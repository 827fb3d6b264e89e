// SPDX-License-Identifier: Apache-2.0
// What the book of causes makes of the peer's probes: a direction that stopped is told, a slot that the peer gave up is
// not.
#include "userspace/agent/insight/cause_book.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

constexpr uint32_t kPair = 3, kNic = 1;
constexpr int kRoundsPerLook = 4, kLooksPerWindow = 50;

// A peer that probes its slots in every round, and whose answers to our probes all come.
class Book : public ::testing::Test {
 protected:
  Book() {
    seen_.pair.local = Addr::FromV4(0x0a000001);
    seen_.pair.remote = Addr::FromV4(0x0a000002);
    for (uint8_t s = 0; s < 4; ++s) {
      seen_.paths.push_back({.slot = s});
      shared_.slot[s].state = CW_SLOT_UP;
    }
    shared_.cur_round = 1000;
    shared_.peer_round = 5000;
    shared_.peer_slots = 0b10111;
  }

  // One window; `heard`: the peer's slots whose probes arrive. The pair's verdict.
  control::Cause Window(uint32_t heard) {
    for (int look = 0; look < kLooksPerWindow; ++look) {
      for (int i = 0; i < kRoundsPerLook; ++i) {
        ++shared_.cur_round;
        ++shared_.peer_round;
        shared_.rcvd[shared_.peer_round % CW_ROUNDS] = {.round = shared_.peer_round,
                                                        .mask = heard & shared_.peer_slots};
        for (uint8_t s = 0; s < 4; ++s) book_.Answered(kPair, s);
      }
      book_.LookAtPair(kPair, seen_, shared_);
    }
    book_.Judge({.nic = kNic, .pairs = {{kPair, 0}}}, 1);
    book_.EndWindow();
    return book_.Of(seen_.pair).cause;
  }

  control::PairObservation seen_;
  cw_pair shared_ = {};
  CauseBook book_;
};

TEST_F(Book, ASlotThatThePeerGivesUpHasNotStopped) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Window(0b10111), control::Cause::kNone);
  shared_.peer_slots = 0b00111;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Window(0b10111), control::Cause::kNone);
}

TEST_F(Book, AProbedSlotThatIsNotHeardAnyMoreIsOneDirectionBad) {
  for (int i = 0; i < 5; ++i) Window(0b10111);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Window(0b10101), control::Cause::kNone) << "the peer says nothing of it";
  book_.PeersPathDied(kPair, 1);
  Window(0b10101);
  for (int i = 0; i < 60; ++i) EXPECT_EQ(Window(0b10101), control::Cause::kOneDirection);
  Window(0b10111);
  Window(0b10111);
  EXPECT_EQ(Window(0b10111), control::Cause::kNone);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Window(0b10101), control::Cause::kNone) << "that verdict was over";
}

TEST_F(Book, ANewSlotOfThePeerHasLostNothingBeforeIt) {
  shared_.peer_slots = 0b00111;
  for (int i = 0; i < 5; ++i) Window(0b10111);
  shared_.peer_slots = 0b10111;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Window(0b10111), control::Cause::kNone);
}

TEST_F(Book, WhatComesAndGoesIsToldOnceAMinute) {
  constexpr int64_t kS = 1'000'000'000;
  const auto worth = [&](control::Cause cause, int64_t at_s) {
    return book_.WorthTelling({.pair = seen_.pair, .cause = cause, .awaited = true}, at_s * kS);
  };
  using control::Cause;
  EXPECT_FALSE(worth(Cause::kNone, 0)) << "nothing had begun";
  EXPECT_TRUE(worth(Cause::kSlowSender, 1));
  EXPECT_TRUE(worth(Cause::kNone, 3));
  EXPECT_FALSE(worth(Cause::kSlowSender, 10));
  EXPECT_FALSE(worth(Cause::kNone, 11)) << "its beginning was not told";
  EXPECT_TRUE(worth(Cause::kIncast, 20)) << "another one";
  EXPECT_TRUE(worth(Cause::kNone, 30));
  EXPECT_TRUE(worth(Cause::kSlowSender, 31));
  EXPECT_TRUE(worth(Cause::kIncast, 90));
}

TEST_F(Book, ASenderThatNobodyWaitsForIsNotWorthTelling) {
  const control::CauseVerdict idle{.pair = seen_.pair, .cause = control::Cause::kSlowSender};
  control::CauseVerdict awaited = idle;
  awaited.awaited = true;
  EXPECT_FALSE(book_.WorthTelling(idle, 0));
  EXPECT_TRUE(book_.WorthTelling(awaited, 1));
  EXPECT_TRUE(book_.WorthTelling(idle, 2)) << "the end of what was told";
  EXPECT_FALSE(book_.WorthTelling({.pair = seen_.pair}, 3));
}

TEST_F(Book, APeerThatDoesNotSayIsNotJudged) {
  for (int i = 0; i < 5; ++i) Window(0b10111);
  shared_.peer_slots = 0;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Window(0), control::Cause::kNone);
}

}  // namespace
}  // namespace cw::agent
