// SPDX-License-Identifier: Apache-2.0
// What the SQLite store keeps of a host at most, and what goes first when there is no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_store_fixture.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Everything that a day brings until the store is full, and a few times more.
void Overfill(Store& store, uint64_t* events) {
  for (uint64_t i = 1; i <= 600 && store.thinned_bytes() < 400'000; ++i) {
    HostBatch batch{.host = absl::StrCat("h", i % 20), .run = 7, .sequence = i};
    for (int p = 0; p < 160; ++p) {
      batch.paths.push_back(Sample(p, kStart + static_cast<int64_t>(i) * 10 * kSecond,
                                   (i * 7919 + static_cast<uint64_t>(p) * 104729) % 100000));
    }
    batch.events = {Event(i, kStart + static_cast<int64_t>(i) * 10 * kSecond)};
    const absl::StatusOr<size_t> added = store.Append({batch});
    ASSERT_TRUE(added.ok()) << i << ": " << added.status();
    *events = i;
    if (i % 30 != 0) continue;
    ASSERT_TRUE(store.Compact(kStart + static_cast<int64_t>(i) * 10 * kSecond).ok());
  }
}

void ExpectAllEventsAndSomeThinned(Store& store, uint64_t events) {
  EXPECT_GT(store.thinned_bytes(), 0u);
  const absl::StatusOr<EventPage> page = store.Events({.limit = 10'000});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->events.size(), events);
}

// More orders than room is left, and their end.
void OrderMoreThanThereIsRoomFor(Store& store) {
  const uint64_t thinned = store.thinned_bytes();
  uint64_t orders = 0;
  while (store.thinned_bytes() == thinned && orders < 2000) {
    const absl::Status put = store.PutOrder({"drain", ++orders, std::string(4000, 'x')});
    ASSERT_TRUE(put.ok()) << orders << ": " << put;
  }
  EXPECT_GT(store.thinned_bytes(), thinned) << "there was room for all of them";
  for (uint64_t id = 1; id <= orders; ++id) ASSERT_TRUE(store.RemoveOrder("drain", id).ok()) << id;
  EXPECT_THAT(*store.Orders("drain"), IsEmpty());
}

// A flood of flows pushes out detail, and no event.
TEST_F(SqliteStore, AFullDatabaseThinsFlowsToo) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 65536, .most_pages = 300});
  ASSERT_TRUE(store.ok()) << store.status();
  std::mt19937_64 random(3);
  for (uint64_t i = 1; i <= 400; ++i) {
    HostBatch batch = WorkBatchOf(i, Work(kStart + static_cast<int64_t>(i) * 10 * kSecond));
    for (JobSample& job : batch.work.jobs) {
      for (int b = 0; b < 800; ++b) job.bytes += static_cast<char>(random());
      for (int b = 0; b < 8; ++b) job.key += static_cast<char>(random());
    }
    for (int more = 0; more < 8; ++more)
      batch.work.jobs.push_back({std::to_string(random()), batch.work.jobs[0].bytes});
    for (JobSample& job : batch.work.jobs) std::shuffle(job.bytes.begin(), job.bytes.end(), random);
    batch.events = {Event(i, kStart)};
    const auto added = (*store)->Append({batch});
    ASSERT_TRUE(added.ok()) << i << ": " << added.status();
    ASSERT_TRUE((*store)->Compact(kStart + static_cast<int64_t>(i) * 10 * kSecond).ok()) << i;
  }
  ExpectAllEventsAndSomeThinned(**store, 400);
  const auto newest = (*store)->Work({"a", kStart + 3900 * kSecond, kStart + 4000 * kSecond});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_THAT(newest->samples, SizeIs(10)) << "the newest stays";
}

// Where nothing but events is left and all of them have one time, the oldest by their arrival go.
TEST_F(SqliteStore, EventsOfOneTimeMakeRoomInAFullStore) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0, .most_pages = 100});
  ASSERT_TRUE(store.ok()) << store.status();
  for (uint64_t i = 1; i <= 100; ++i) {
    StoredEvent event = Event(i, kStart);
    event.payload = std::string(5000, 'x');
    const auto added = (*store)->Append({EventBatch(i, {event})});
    ASSERT_TRUE(added.ok()) << i << ": " << added.status();
  }
  const absl::StatusOr<EventPage> page = (*store)->Events({.limit = 1000});
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_FALSE(page->events.empty());
  EXPECT_LT(page->events.size(), 100u) << "there was room for all of them";
  EXPECT_EQ(page->events.back().seq, 100u);
  EXPECT_EQ(page->events.back().seq - page->events.front().seq, page->events.size() - 1) << "the oldest went";
}

// What events take is known without a look at them, and by size those of one time go, too.
TEST_F(SqliteStore, EventsGoBySizeThoughTheyShareOneTime) {
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE(db.ok());
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto sum_is_right = [&] {
    EXPECT_EQ(*(*db)->Number("SELECT bytes FROM tier WHERE tier = 3"),
              *(*db)->Number("SELECT coalesce(sum(length(payload) + 64), 0) FROM event"));
  };
  for (uint64_t i = 1; i <= 40; ++i) ASSERT_TRUE((*store)->Append({EventBatch(i, {Event(i, kStart)})}).ok());
  ASSERT_TRUE((*store)->Append({EventBatch(41, {Event(41, kStart + kSecond), Event(41, kStart)})}).ok());
  sum_is_right();
  Retention keep;
  EXPECT_THAT(*(*store)->PlanRetention(kStart + 9 * kSecond, keep), IsEmpty());
  keep.events.bytes = 1000;
  const auto plan = (*store)->PlanRetention(kStart + 9 * kSecond, keep);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(*plan, SizeIs(1));
  ASSERT_TRUE((*store)->Delete(*plan).ok());
  EXPECT_THAT((*store)->Events({})->events, ElementsAre(Event(41, kStart + kSecond)));
  sum_is_right();
}

// What one host tells of ten minutes takes no more memory than a block may, however small it is where it is stored.
TEST_F(SqliteStore, ABlockIsNeverLargerThanItCanBeRead) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto tell = [&](uint64_t sequence, int64_t time_ns, size_t bytes) {
    HostBatch batch = WorkBatchOf(sequence, Work(time_ns));
    batch.work.jobs[0].bytes = std::string(bytes, 'x');
    ASSERT_TRUE((*store)->Append({batch}).ok());
  };
  for (uint64_t i = 1; i <= 60; ++i) tell(i, kStart + static_cast<int64_t>(i) * 9 * kSecond, 1 << 20);
  EXPECT_THAT((*store)->Work({"a", kStart, kStart + 600 * kSecond})->samples, SizeIs(31));
  EXPECT_EQ((*store)->work_losses(), (WorkLosses{.left_out = 29}));
  tell(61, kStart + 1000 * kSecond, 100);
  EXPECT_THAT((*store)->Work({"a", kStart + 600 * kSecond, kStart + 1200 * kSecond})->samples, SizeIs(1))
      << "of the next ten minutes";
  // It is full after it was made, too.
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  for (uint64_t i = 62; i <= 70; ++i) tell(i, kStart + static_cast<int64_t>(i) * 9 * kSecond, 1 << 20);
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  const auto kept = (*store)->Work({"a", kStart, kStart + 600 * kSecond});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->samples, SizeIs(31));
  EXPECT_EQ((*store)->work_losses(), (WorkLosses{.left_out = 29 + 5})) << "four are of the next ten minutes";
}

// Rows that wait for their block are of the finest tier's size.
TEST_F(SqliteStore, WhatWaitsForItsBlockCounts) {
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE(db.ok());
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  const auto of_tier = [&] { return *(*db)->Number("SELECT bytes FROM tier WHERE tier = 0"); };
  for (uint64_t i = 1; i <= 20; ++i)
    ASSERT_TRUE((*store)->Append({WorkBatchOf(i, Work(kStart + static_cast<int64_t>(i) * 10 * kSecond))}).ok());
  EXPECT_EQ(of_tier(), *(*db)->Number("SELECT sum(length(blob)) FROM work_fresh"));
  EXPECT_GT(of_tier(), 0);
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  EXPECT_EQ(*(*db)->Number("SELECT count(*) FROM work_fresh"), 0);
  EXPECT_EQ(of_tier(), *(*db)->Number("SELECT sum(length(blob)) FROM work WHERE tier = 0"));
}

TEST_F(SqliteStore, AFullDatabaseThinsSamplesAndKeepsEvents) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 65536, .most_pages = 400});
  ASSERT_TRUE(store.ok()) << store.status();
  uint64_t events = 0;
  Overfill(**store, &events);
  OrderMoreThanThereIsRoomFor(**store);
  ExpectAllEventsAndSomeThinned(**store, events);
}

TEST_F(SqliteStore, AFullDiskThinsSamplesAndKeepsEvents) {
  if (mount("none", folder.c_str(), "tmpfs", 0, "size=6m") != 0) GTEST_SKIP() << "needs the right to mount";
  const absl::Cleanup unmount = [this] { umount2(folder.c_str(), MNT_DETACH); };
  {
    auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 2 << 20});
    ASSERT_TRUE(store.ok()) << store.status();
    uint64_t events = 0;
    Overfill(**store, &events);
    OrderMoreThanThereIsRoomFor(**store);
    ExpectAllEventsAndSomeThinned(**store, events);
  }
  EXPECT_TRUE(OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 2 << 20}).ok());
}
}  // namespace
}  // namespace cw::fleet
