// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/control/link_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cw::control {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHour = 3600 * kSecond;

LinkOutage Of(const std::vector<std::string>& links, int64_t began_ns, uint64_t path = 1) {
  return {.links = links, .began_ns = began_ns, .seen_by = {{path, "h" + std::to_string(path) + "/0"}}};
}

// Its paths were alive just before.
bool Fires(LinkBook& book, const std::vector<std::string>& links, int64_t began_ns) {
  return book.Add(Of(links, began_ns), began_ns - kSecond / 10).has_value();
}

TEST(LinkBook, EightFlapsAreSilentAndTheNinthIsToldOnce) {
  LinkBook book;
  for (int i = 1; i <= 8; ++i) EXPECT_FALSE(Fires(book, {"up0"}, i * kSecond)) << i;
  const std::optional<FlapAlert> alert = book.Add(Of({"up0"}, 9 * kSecond, 2), 9 * kSecond - 1);
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->links, ElementsAre("up0"));
  EXPECT_EQ(alert->count.flaps, 9);
  EXPECT_EQ(alert->count.certain, 9);
  EXPECT_EQ(alert->first_ns, kSecond);
  EXPECT_EQ(alert->last_ns, 9 * kSecond);
  EXPECT_THAT(alert->seen_by, ElementsAre("h1/0", "h2/0"));
  for (int i = 10; i < 30; ++i) EXPECT_FALSE(Fires(book, {"up0"}, i * kSecond)) << i;
  EXPECT_EQ(book.AlertText(), "has flapped more than 8 times within the past hour");
}

TEST(LinkBook, TheHourSlidesExactlyAndItTellsAgainOnceItHadFallenBelow) {
  for (const bool still_above : {true, false}) {
    LinkBook book;
    for (int i = 0; i < 9; ++i) EXPECT_EQ(Fires(book, {"up0"}, i * kSecond), i == 8);
    // The first is an hour old at 3600 s sharp: eight were left.
    const int64_t tenth_ns = kHour - (still_above ? 1 : 0);
    EXPECT_EQ(book.CountOf("up0", tenth_ns).flaps, still_above ? 9 : 8);
    EXPECT_EQ(Fires(book, {"up0"}, tenth_ns), !still_above);
  }
}

TEST(LinkBook, DeathsOfManyPathsWithinOneOutageAreOneFlap) {
  LinkBook book;
  for (int flap = 0; flap < 8; ++flap) {
    const int64_t began_ns = (10 + flap) * kSecond;
    for (uint64_t path = 1; path <= 20; ++path) {
      // Those that are probed rarely die later, but none was alive after the first had died.
      const int64_t told_ns = began_ns + static_cast<int64_t>(path) * kSecond / 40;
      EXPECT_FALSE(book.Add(Of({"up0"}, told_ns, path), began_ns - kSecond / 100));
    }
    EXPECT_EQ(book.CountOf("up0", began_ns + kSecond / 2).flaps, flap + 1);
  }
  EXPECT_TRUE(Fires(book, {"up0"}, 18 * kSecond));
}

TEST(LinkBook, APathThatWasAliveInBetweenBeginsANewOutage) {
  LinkBook book;
  EXPECT_FALSE(book.Add(Of({"up0"}, kSecond, 1), kSecond - 1));
  EXPECT_FALSE(book.Add(Of({"up0"}, 2 * kSecond, 2), kSecond + kSecond / 2));
  EXPECT_EQ(book.CountOf("up0", 2 * kSecond).flaps, 2);
  // One that slept through both is a third witness of the last.
  EXPECT_FALSE(book.Add(Of({"up0"}, 2 * kSecond + 1, 3), kSecond / 2));
  EXPECT_EQ(book.CountOf("up0", 2 * kSecond + 1).flaps, 2);
}

TEST(LinkBook, ALaterDeathNarrowsDownWhatTheFirstLeftOpen) {
  LinkBook book;
  book.Add(Of({"up0", "down0"}, kSecond, 1), kSecond - 1);
  EXPECT_EQ(book.CountOf("down0", kSecond).flaps, 1);
  EXPECT_EQ(book.CountOf("up0", kSecond).certain, 0);
  book.Add(Of({"up0", "down1"}, kSecond + 1, 2), kSecond - 1);
  EXPECT_EQ(book.CountOf("up0", 2 * kSecond).certain, 1);
  EXPECT_EQ(book.CountOf("down0", 2 * kSecond).flaps, 0);
  EXPECT_EQ(book.CountOf("down1", 2 * kSecond).flaps, 0);
}

TEST(LinkBook, LinksThatNobodyTellsApartAreOneAlert) {
  LinkBook book;
  for (int i = 1; i <= 8; ++i) EXPECT_FALSE(Fires(book, {"up0", "down0"}, i * kSecond));
  const std::optional<FlapAlert> alert = book.Add(Of({"up0", "down0"}, 9 * kSecond), 9 * kSecond - 1);
  ASSERT_TRUE(alert);
  EXPECT_THAT(alert->links, ElementsAre("down0", "up0"));
  EXPECT_EQ(alert->count.certain, 0);
  for (int i = 10; i < 20; ++i) {
    EXPECT_FALSE(Fires(book, {"up0", "down1"}, i * kSecond)) << "the uplink was told of";
  }
}

TEST(LinkBook, LinksAreCountedApart) {
  LinkBook book;
  for (int i = 1; i <= 8; ++i) {
    EXPECT_FALSE(Fires(book, {"up0"}, i * kSecond));
    EXPECT_FALSE(Fires(book, {"up1"}, i * kSecond + 1));
  }
  EXPECT_EQ(book.Counts(9 * kSecond).size(), 2u);
  EXPECT_EQ(book.Counts(9 * kSecond).at("up1").flaps, 8);
}

TEST(LinkBook, LossesOfACarrierAreNeverOneOutage) {
  LinkBook book;
  int alerts = 0;
  for (int i = 0; i < 9; ++i) alerts += book.Add(Of({"eth0"}, kSecond, 0), INT64_MAX).has_value();
  EXPECT_EQ(alerts, 1);
  EXPECT_EQ(book.CountOf("eth0", kSecond).flaps, 9);
}

TEST(LinkBook, APauseTakesItsOutageBack) {
  LinkBook book;
  book.Add(Of({"up0"}, kSecond, 1), kSecond - 1);
  book.Add(Of({"up0"}, kSecond + 1, 2), kSecond - 1);
  book.Retract(1, kSecond - 1);
  EXPECT_EQ(book.CountOf("up0", 2 * kSecond).flaps, 1) << "another path died of it";
  book.Retract(2, kSecond - 1);
  EXPECT_EQ(book.CountOf("up0", 2 * kSecond).flaps, 0);
  book.Retract(3, kSecond - 1);
}

TEST(LinkBook, APauseLeavesWhatThePathDiedOfBefore) {
  LinkBook book;
  book.Add(Of({"up0"}, kSecond, 1), kSecond - 1);
  book.Retract(1, 5 * kSecond);  // the pause was not in the book yet
  EXPECT_EQ(book.CountOf("up0", 6 * kSecond).flaps, 1);
}

TEST(LinkBook, DampsThePathsOfAllPairsThatTakeTheLink) {
  LinkBook book;
  const std::vector<std::string> same = {"own", "up0", "down1", "h3"}, other = {"own", "up1", "down1", "h3"};
  Fires(book, {"up0"}, kSecond);
  EXPECT_FALSE(book.Damps(same, kSecond)) << "one failure is forgiven";
  Fires(book, {"up0"}, kSecond + kSecond / 2);
  Fires(book, {"up0"}, 2 * kSecond);
  EXPECT_TRUE(book.AnyToDamp(2 * kSecond));
  EXPECT_TRUE(book.Damps(same, 2 * kSecond));
  EXPECT_FALSE(book.Damps(other, 2 * kSecond));
  EXPECT_TRUE(book.Damps(same, 8 * kSecond)) << "2800 halves in 5 s";
  EXPECT_FALSE(book.Damps(same, 12 * kSecond));
  EXPECT_FALSE(book.AnyToDamp(100 * kSecond));
}

// Nobody knows which of the two it was: a path that takes one of them only is not kept out for it.
TEST(LinkBook, DampsOnlyWhereItCanHaveBeenNoOtherLink) {
  LinkBook book;
  for (int i = 2; i < 6; ++i) Fires(book, {"up0", "down0"}, i * kSecond / 2);
  const std::vector<std::string> both = {"up0", "down0", "h1"}, one = {"up0", "down1", "h3"};
  EXPECT_TRUE(book.Damps(both, 3 * kSecond));
  EXPECT_FALSE(book.Damps(one, 3 * kSecond));
}

TEST(LinkBook, WhatHadDecayedDoesNotComeBackWithTheNextFlap) {
  LinkBook book;
  for (int i = 0; i < 2; ++i) Fires(book, {"up0"}, kSecond + i * kSecond / 2);
  Fires(book, {"up0"}, 3 * kSecond);
  ASSERT_TRUE(book.Damps(std::vector<std::string>{"up0"}, 3 * kSecond));
  Fires(book, {"up0"}, 30 * kSecond);
  EXPECT_FALSE(book.Damps(std::vector<std::string>{"up0"}, 30 * kSecond)) << "1000 and some 60 of before";
}

TEST(LinkBook, HoldsABoundedNumberAndThatOfAnEarlierAgent) {
  LinkBook book;
  EXPECT_FALSE(book.TakeChanged());
  for (int i = 0; i < 10'000; ++i) book.Add(Of({"up" + std::to_string(i)}, kSecond + i, 1), INT64_MAX);
  EXPECT_LE(book.outages().size(), 4097u);
  EXPECT_TRUE(book.TakeChanged());
  EXPECT_FALSE(book.TakeChanged());
  LinkBook before, after;
  for (int i = 1; i <= 8; ++i) Fires(before, {"up0"}, i * kSecond);
  after.Restore(before.outages());
  EXPECT_FALSE(after.TakeChanged());
  EXPECT_TRUE(Fires(after, {"up0"}, 9 * kSecond));
}

}  // namespace
}  // namespace cw::control
