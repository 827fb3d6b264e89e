// SPDX-License-Identifier: Apache-2.0
// What the SQLite store keeps of a host at most, and what goes first when there is no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_store_fixture.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/host_cache.h"
#include "userspace/fleet/store/sqlite/ready.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

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
// ---- names ----

// Samples of the paths with these numbers.
HostBatch ManyPaths(uint64_t sequence, int64_t time_ns, int first, int last) {
  HostBatch batch{.host = "a", .run = 7, .sequence = sequence};
  for (int p = first; p < last; ++p) batch.paths.push_back(Sample(p, time_ns));
  return batch;
}

HopList List(uint32_t number) {
  const std::vector<Addr> hops = {Addr::FromV4(number), Addr{}, Addr::FromV4(3)};
  return {HopsId(hops), hops};
}

struct BoundedStore : SqliteStore {
  BoundedStore() { Open(); }
  void Open() {
    store.reset();
    auto opened = OpenSqliteStore(
        folder + "/fleet.db",
        {.reserve_bytes = 0, .most_paths = 10, .most_hop_lists = 5, .event_bytes_a_day = 1000, .now_ns = [this] {
           return now_ns;
         }});
    ASSERT_TRUE(opened.ok()) << opened.status();
    store = *std::move(opened);
  }
  void Append(const HostBatch& batch) {
    const auto added = store->Append({batch});
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_EQ(*added, 1u);
  }
  HostLosses LostOf(const std::string& host) { return store->host_losses()[host]; }
  // Of all tiers, what is older.
  void ForgetBefore(int64_t time_ns) {
    std::vector<Deletion> all;
    for (int tier = 0; tier < static_cast<int>(kTiers); ++tier) all.push_back({.tier = tier, .before_ns = time_ns});
    const absl::Status status = store->Delete(all);
    ASSERT_TRUE(status.ok()) << status;
  }
  void CompactAll() {
    for (absl::StatusOr<bool> more = true; *more;) {
      more = store->Compact(now_ns + kDay);
      ASSERT_TRUE(more.ok()) << more.status();
    }
  }
  int64_t Count(const char* sql) {
    auto db = Database::Open(folder + "/fleet.db");
    return *(*db)->Number(sql);
  }

  static constexpr int64_t kDay = 86400 * kSecond;
  int64_t now_ns = kStart;
  std::unique_ptr<Store> store;
};

TEST_F(BoundedStore, AHostThatInventsPathsKeepsTheFirstOnes) {
  Append(ManyPaths(1, kStart + 10 * kSecond, 0, 8));
  Append(ManyPaths(2, kStart + 20 * kSecond, 0, 100));
  EXPECT_EQ(LostOf("a"), (HostLosses{.samples = 90}));
  EXPECT_THAT(store->LatestAt("a", kStart + 20 * kSecond, absl::Minutes(1))->paths, SizeIs(10));
  HostBatch other = ManyPaths(1, kStart + 20 * kSecond, 0, 10);
  other.host = "b";
  Append(other);
  EXPECT_EQ(LostOf("b"), HostLosses()) << "each has its own bound";
  Open();
  Append(ManyPaths(3, kStart + 30 * kSecond, 5, 15));
  EXPECT_EQ(LostOf("a"), (HostLosses{.samples = 5})) << "it is known after a restart";
  EXPECT_EQ(Count("SELECT count(*) FROM path"), 20);
}

// As soon as nothing is kept that names them, the oldest make room, before retention comes to them.
TEST_F(BoundedStore, PathsThatNothingNamesMakeRoomForNewOnes) {
  Append(ManyPaths(1, kStart + 10 * kSecond, 0, 10));
  now_ns = kStart + 10 * kDay;
  Append(ManyPaths(2, now_ns, 8, 10));  // two are used still
  CompactAll();
  {
    auto db = Database::Open(folder + "/fleet.db");
    const int64_t horizon_ns = kStart + 5 * kDay;
    ASSERT_TRUE((*db)->Exec(absl::StrCat("UPDATE tier SET horizon_ns = ", horizon_ns)).ok());
  }
  Append(ManyPaths(3, now_ns + 10 * kSecond, 10, 18));
  EXPECT_EQ(LostOf("a"), HostLosses());
  Append(ManyPaths(4, now_ns + 20 * kSecond, 0, 1));
  EXPECT_EQ(LostOf("a"), (HostLosses{.samples = 1})) << "now all are in use";
  const auto paths = store->LatestAt("a", now_ns + 20 * kSecond, absl::Minutes(1))->paths;
  ASSERT_THAT(paths, SizeIs(10));
  EXPECT_THAT(paths, testing::Each(
                         testing::Field(&PathSample::key, testing::AllOf(testing::Ge(Key(8)), testing::Le(Key(17))))));
}

// Whatever is kept has its names; the rest go with the samples.
TEST_F(BoundedStore, NamesGoWithTheLastSamplesThatNameThem) {
  HostBatch old = ManyPaths(1, kStart + 10 * kSecond, 0, 4);
  old.hop_lists = {List(1), List(2), List(3)};
  for (PathSample& sample : old.paths) sample.hops = List(1).id;
  old.work = Work(kStart + 20 * kSecond);
  for (FlowSample& flow : old.work.flows) flow.hops = List(2).id;
  Append(old);
  now_ns = kStart + 10 * kDay;
  HostBatch late = ManyPaths(2, now_ns, 3, 5);
  late.work = Work(now_ns);
  for (FlowSample& flow : late.work.flows) flow.hops = List(2).id;
  Append(late);
  CompactAll();
  ForgetBefore(kStart);
  EXPECT_EQ(Count("SELECT count(*) FROM path"), 5);
  EXPECT_EQ(Count("SELECT count(*) FROM hops"), 2) << "one was told days ago, and nothing ever named it";
  EXPECT_TRUE(store->Hops("a", List(1).id).ok());
  ForgetBefore(kStart + 5 * kDay);
  EXPECT_EQ(Count("SELECT count(*) FROM path"), 2);
  EXPECT_THAT(*store->AllHops("a"), ElementsAre(List(2)));
  EXPECT_TRUE(absl::IsNotFound(store->Hops("a", List(1).id).status()));
  EXPECT_THAT(store->LatestAt("a", now_ns, absl::Minutes(1))->paths, SizeIs(2)) << "what is kept has its name";
  EXPECT_EQ(Count("SELECT sum(paths) * 100 + sum(hop_lists) FROM host"), 201);
  // One that comes back is new.
  HostBatch again = ManyPaths(3, now_ns + 10 * kSecond, 0, 1);
  again.hop_lists = {List(1)};
  Append(again);
  EXPECT_TRUE(store->Hops("a", List(1).id).ok());
  EXPECT_THAT(store->LatestAt("a", now_ns + 10 * kSecond, absl::Minutes(1))->paths, SizeIs(3));
}

TEST_F(BoundedStore, AHostThatInventsWaysKeepsTheFirstOnes) {
  HostBatch batch = ManyPaths(1, kStart + 10 * kSecond, 0, 1);
  for (uint32_t i = 0; i < 50; ++i) batch.hop_lists.push_back(List(i));
  batch.paths[0].hops = List(4).id;
  Append(batch);
  EXPECT_EQ(LostOf("a"), (HostLosses{.hop_lists = 45}));
  EXPECT_THAT(*store->AllHops("a"), SizeIs(5));
  EXPECT_EQ(store->AllHops("a")->front(), List(4)) << "what samples used last comes first";
  EXPECT_EQ(store->Hops("a", List(0).id).value_or(HopList()), List(0));
  EXPECT_TRUE(absl::IsNotFound(store->Hops("a", List(9).id).status()));
  // Told once more they are there; days later those that nothing named make room.
  batch = HostBatch{.host = "a", .run = 7, .sequence = 2, .hop_lists = {List(2), List(60)}};
  Append(batch);
  EXPECT_EQ(LostOf("a"), (HostLosses{.hop_lists = 46}));
  now_ns = kStart + 3 * kDay;
  Append({.host = "a", .run = 7, .sequence = 3, .hop_lists = {List(70), List(71), List(72), List(73)}});
  EXPECT_EQ(LostOf("a"), (HostLosses{.hop_lists = 46}));
  EXPECT_EQ(store->AllHops("a")->front(), List(4)) << "a sample names it";
  Append({.host = "a", .run = 7, .sequence = 4, .hop_lists = {List(0)}});
  EXPECT_EQ(LostOf("a"), (HostLosses{.hop_lists = 47})) << "one that went is as new";
  EXPECT_THAT(*store->AllHops("a"), SizeIs(5));
}

// ---- events ----

TEST_F(BoundedStore, AHostHasAShareOfADaysEvents) {
  const auto told = [](const std::string& host, uint64_t sequence, int64_t time_ns) {
    StoredEvent event = Event(sequence, time_ns, "path", host);
    event.payload = std::string(400, 'x');
    HostBatch batch = EventBatch(sequence, {event});
    batch.paths = {Sample(0, time_ns)};
    return batch;
  };
  const auto kept = [&](const std::string& host) { return store->Events({.host = host})->events.size(); };
  for (uint64_t i = 1; i <= 4; ++i) Append(told("a", i, kStart + static_cast<int64_t>(i) * kSecond));
  EXPECT_EQ(kept("a"), 2u);
  EXPECT_EQ(LostOf("a"), (HostLosses{.events = 2}));
  EXPECT_EQ(*store->Through("a", 7), 4u) << "the batches are taken";
  EXPECT_EQ(store->Range({.host = "a", .from_ns = kStart, .to_ns = kStart + 9 * kSecond})->samples.size(), 4u);
  HostBatch own = told("a", 1, kStart + kSecond);
  own.sequence = 10;
  own.documents = {{"inventory", kStart, "two NICs"}};
  Append(own);
  EXPECT_EQ(LostOf("a"), (HostLosses{.events = 2})) << "that event was there already";
  EXPECT_EQ(store->LatestAt("a", kStart, absl::ZeroDuration())->documents.size(), 1u) << "said once, there is room";
  Append(told("b", 1, kStart));
  EXPECT_EQ(kept("b"), 1u) << "each has its own share";
  Open();
  Append(told("a", 5, kStart + kDay));  // its own clock is of no use to it
  EXPECT_EQ(kept("a"), 2u) << "a restart gives no new share";
  EXPECT_EQ(LostOf("a"), (HostLosses{.events = 1}));
  now_ns += kDay;
  Append(told("a", 6, kStart + kDay));
  EXPECT_EQ(kept("a"), 3u);
}

// A batch that did not come to the disk has lost nothing yet, and took nothing of the share.
TEST_F(BoundedStore, WhatIsRolledBackIsNoLoss) {
  HostBatch batch = EventBatch(1, {Event(1, kStart), Event(2, kStart)});
  batch.events[0].payload = batch.events[1].payload = std::string(700, 'x');
  auto db = Database::Open(folder + "/fleet.db");
  ASSERT_TRUE((*db)
                  ->Exec("CREATE TRIGGER broken BEFORE UPDATE OF event_bytes ON host BEGIN "
                         "SELECT raise(ABORT, 'the disk fails'); END")
                  .ok());
  EXPECT_FALSE(store->Append({batch}).ok());
  EXPECT_THAT(store->host_losses(), IsEmpty());
  EXPECT_EQ(*store->Through("a", 7), 0u);
  ASSERT_TRUE((*db)->Exec("DROP TRIGGER broken").ok());
  Append(batch);
  EXPECT_EQ(LostOf("a"), (HostLosses{.events = 1}));
  EXPECT_EQ(*store->Through("a", 7), 1u);
}

// ---- what is answered meanwhile ----

TEST_F(SqliteStore, ARunsEndIsToldWhileTheStoreIsAtWork) {
  std::promise<void> at_work, told;
  std::atomic<bool> waits = false;
  auto store =
      OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0, .now_ns = [&] {
                                               if (waits.exchange(false)) {
                                                 at_work.set_value();
                                                 told.get_future().wait_for(std::chrono::seconds(
                                                     10));  // a store that makes others wait fails, and does not hang
                                               }
                                               return kStart;
                                             }});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Append({Batch(1, kStart)}).ok());
  waits = true;
  std::thread appends([&] { EXPECT_TRUE((*store)->Append({Batch(2, kStart)}).ok()); });
  at_work.get_future().wait();
  EXPECT_EQ(*(*store)->Through("a", 7), 1u) << "only what is on the disk";
  EXPECT_THAT((*store)->host_losses(), IsEmpty());
  EXPECT_EQ((*store)->work_losses(), WorkLosses());
  told.set_value();
  appends.join();
  EXPECT_EQ(*(*store)->Through("a", 7), 2u);
  ASSERT_TRUE((*store)->Skip("a", 7, 3, 5).ok());
  EXPECT_EQ(*(*store)->Through("a", 7), 5u);
}

TEST(Ready, KnowsTheRunsOfLateAndNoMoreThanTwiceItsBound) {
  Ready ready(4);
  for (uint64_t run = 1; run <= 100; ++run) {
    ready.PutThrough("a", run, run);
    ready.PutThrough("b", 0, run);
    for (uint64_t late = run < 3 ? 1 : run - 2; late <= run; ++late) EXPECT_EQ(ready.Through("a", late), late);
    EXPECT_EQ(ready.Through("b", 0), run) << "the latest word";
  }
  int known = 0;
  for (uint64_t run = 1; run <= 100; ++run) known += ready.Through("a", run).has_value() ? 1 : 0;
  EXPECT_LE(known, 8);
}

TEST(HostCache, ForgetsOtherHostsFirst) {
  HostCache<int, int> cache(10);
  for (int i = 0; i < 6; ++i) cache.Put(1, i, i);
  for (int i = 0; i < 8; ++i) cache.Put(2, i, i);
  EXPECT_EQ(cache.size(), 8u);
  EXPECT_EQ(cache.Find(1, 0), nullptr);
  EXPECT_EQ(*cache.Find(2, 7), 7);
  for (int i = 8; i < 100; ++i) cache.Put(2, i, i);
  EXPECT_LE(cache.size(), 10u) << "of one host alone, too";
  cache.Put(2, 99, 5);
  EXPECT_EQ(*cache.Find(2, 99), 5);
  cache.Forget(2);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace cw::fleet
