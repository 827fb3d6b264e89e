// SPDX-License-Identifier: Apache-2.0
// The conformance suite: what every engine of the fleet's store does. An engine joins by a factory at the end.
#include "userspace/fleet/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_store_fixture.h"
#include "userspace/fleet/store/sample_blob.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/fleet/store/work_blob.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// How an engine is opened on what is in a folder; a second time it finds what the first left.
struct Engine {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Store>>(const std::string& folder)> open;
};

class StoreTest : public ::testing::TestWithParam<Engine> {
 protected:
  StoreTest() {
    std::string name = (fs::temp_directory_path() / "cw_store_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    Open();
  }
  ~StoreTest() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  void Open() {
    store_.reset();
    absl::StatusOr<std::unique_ptr<Store>> store = GetParam().open(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  size_t Append(const HostBatch& batch) {
    const absl::StatusOr<size_t> added = store_->Append({batch});
    EXPECT_TRUE(added.ok()) << added.status();
    return added.value_or(0);
  }
  // Batches each ten seconds from kStart on.
  void Fill(int batches, int paths = 2) {
    for (int i = 1; i <= batches; ++i) Append(Batch(static_cast<uint64_t>(i), kStart + i * 10 * kSecond, paths));
  }
  void CompactAll(int64_t now_ns) {
    for (bool more = true; more;) {
      const absl::StatusOr<bool> went_on = store_->Compact(now_ns);
      ASSERT_TRUE(went_on.ok()) << went_on.status();
      more = *went_on;
    }
  }
  std::vector<PathSample> Range(int64_t from_ns, int64_t to_ns, size_t most = 10'000) {
    const absl::StatusOr<RangeReply> reply =
        store_->Range({.host = "a", .from_ns = from_ns, .to_ns = to_ns, .path = Key(0), .most_samples = most});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->samples : std::vector<PathSample>{};
  }
  WorkReply WorkOf(int64_t from_ns, int64_t to_ns) {
    const absl::StatusOr<WorkReply> reply = store_->Work({.host = "a", .from_ns = from_ns, .to_ns = to_ns});
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(WorkReply());
  }
  std::vector<uint64_t> EventSeqs(const EventQuery& query) {
    const absl::StatusOr<EventPage> page = store_->Events(query);
    EXPECT_TRUE(page.ok()) << page.status();
    std::vector<uint64_t> seqs;
    if (!page.ok()) return seqs;
    for (const StoredEvent& e : page->events) seqs.push_back(e.seq);
    return seqs;
  }

  std::string folder_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreTest, ABatchThatComesTwiceChangesNothing) {
  HostBatch batch = Batch(1, kStart + 10 * kSecond);
  batch.events = {Event(1, kStart)};
  EXPECT_EQ(Append(batch), 1u);
  EXPECT_EQ(Append(batch), 0u);
  EXPECT_EQ(*store_->Append({batch, Batch(2, kStart + 20 * kSecond), batch}), 1u);
  Open();  // and after a restart
  EXPECT_EQ(Append(batch), 0u);
  EXPECT_THAT(Range(kStart, kStart + 60 * kSecond), SizeIs(2));
  EXPECT_THAT(EventSeqs({}), ElementsAre(1));
  HostBatch other_run = batch;
  other_run.run = 8;
  EXPECT_EQ(Append(other_run), 1u);
}

TEST_P(StoreTest, KeepsWhatIsKnownOfHostsAndOrdersOverARestart) {
  Append(Batch(1, kStart + 10 * kSecond));
  const std::vector<HostFacts> facts = {{"a", "10.0.0.1:9477", 0}, {"b", "", 5}};
  ASSERT_TRUE(store_->PutHosts(facts).ok());
  ASSERT_TRUE(store_->PutHosts({{"a", "a:1", 7}}).ok());
  ASSERT_TRUE(store_->PutOrder({"drain", 2, "two"}).ok());
  ASSERT_TRUE(store_->PutOrder({"drain", 1, "one"}).ok());
  ASSERT_TRUE(store_->PutOrder({"mute", 1, "other"}).ok());
  ASSERT_TRUE(store_->PutOrder({"drain", 2, "again"}).ok());
  Open();
  const absl::StatusOr<std::vector<HostSeen>> hosts = store_->Hosts();
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  ASSERT_THAT(*hosts, SizeIs(2));
  EXPECT_EQ((*hosts)[0].facts, (HostFacts{"a", "a:1", 7}));
  EXPECT_EQ((*hosts)[0].newest_ns, kStart + 10 * kSecond);
  EXPECT_EQ((*hosts)[1].facts, facts[1]);
  EXPECT_THAT(*store_->Orders("drain"), ElementsAre(StoredOrder{"drain", 1, "one"}, StoredOrder{"drain", 2, "again"}));
  ASSERT_TRUE(store_->RemoveOrder("drain", 1).ok());
  ASSERT_TRUE(store_->RemoveOrder("drain", 9).ok());
  EXPECT_THAT(*store_->Orders("drain"), SizeIs(1));
  EXPECT_THAT(*store_->Orders("mute"), SizeIs(1));
  EXPECT_THAT(*store_->Orders("none"), IsEmpty());
  EXPECT_THAT(Range(kStart, kStart + 60 * kSecond), SizeIs(1)) << "history stays";
}

TEST_P(StoreTest, TellsUpToWhereNothingIsMissing) {
  EXPECT_EQ(*store_->Through("a", 7), 0u);
  for (const uint64_t s : {2, 1, 4, 5, 9}) Append(Batch(s, kStart + static_cast<int64_t>(s) * kSecond));
  EXPECT_EQ(*store_->Through("a", 7), 2u);
  Append(Batch(3, kStart));
  EXPECT_EQ(*store_->Through("a", 7), 5u);
  ASSERT_TRUE(store_->Skip("a", 7, 5, 8).ok());  // the agent lost them
  EXPECT_EQ(*store_->Through("a", 7), 9u);
  EXPECT_EQ(Append(Batch(7, kStart)), 0u);
  EXPECT_EQ(*store_->Through("a", 8), 0u);
  EXPECT_FALSE(store_->Skip("a", 7, 0, 3).ok());
}

TEST_P(StoreTest, FlowsAndJobsOfAnIntervalAreThereAsTheyWereTold) {
  std::vector<WorkSample> told;
  for (uint64_t i = 1; i <= 120; ++i) {
    told.push_back(Work(kStart + static_cast<int64_t>(i) * 10 * kSecond));
    if (i == 50) told.back().collectives = {"slow", "slower"};
    EXPECT_EQ(Append(WorkBatchOf(i, told.back())), 1u);
  }
  EXPECT_EQ(Append(WorkBatchOf(120, told.back())), 0u) << "twice";
  for (const bool compacted : {false, true}) {
    if (compacted) CompactAll(kStart + 3600 * kSecond);
    EXPECT_THAT(WorkOf(kStart, kStart + 1200 * kSecond).samples, testing::ElementsAreArray(told)) << compacted;
    const WorkReply some = WorkOf(kStart + 490 * kSecond, kStart + 510 * kSecond);
    EXPECT_EQ(some.tier, Tier::kFine);
    EXPECT_THAT(some.samples, ElementsAre(told[49], told[50]));
    Open();
  }
  // What comes late joins the block that is there.
  const WorkSample late = Work(kStart + 495 * kSecond);
  Append(WorkBatchOf(121, late));
  CompactAll(kStart + 3600 * kSecond);
  EXPECT_THAT(WorkOf(kStart + 490 * kSecond, kStart + 500 * kSecond).samples, ElementsAre(late, told[49]));
  EXPECT_THAT(WorkOf(kStart, kStart + 1200 * kSecond).samples, SizeIs(121));
  EXPECT_TRUE(absl::IsNotFound(store_->Work({.host = "z", .from_ns = 0, .to_ns = kStart}).status()));
  EXPECT_FALSE(store_->Work({.host = "a", .from_ns = 5, .to_ns = 5}).ok());
}

TEST_P(StoreTest, OldFlowsAreCoarserAndThenGone) {
  for (uint64_t i = 1; i <= 360; ++i) {
    WorkSample work = Work(kStart + static_cast<int64_t>(i) * 10 * kSecond);
    if (i == 8) work.collectives = {"slow"};
    Append(WorkBatchOf(i, std::move(work)));
  }
  CompactAll(kStart + 2 * 3600 * kSecond);
  Retention keep;
  const auto let_go = [&](absl::Duration after) {
    const auto plan = store_->PlanRetention(kStart + absl::ToInt64Nanoseconds(after), keep);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_FALSE(plan->empty());
    ASSERT_TRUE(store_->Delete(*plan).ok());
  };
  let_go(absl::Hours(50));
  WorkReply then = WorkOf(kStart + 60 * kSecond, kStart + 70 * kSecond);
  EXPECT_EQ(then.tier, Tier::kMinute);
  ASSERT_THAT(then.samples, SizeIs(1));
  const WorkSample& minute = then.samples[0];
  EXPECT_EQ(minute.from_ns, kStart + 60 * kSecond);
  EXPECT_EQ(minute.time_ns, kStart + 120 * kSecond);
  ASSERT_THAT(minute.flows, SizeIs(2));
  EXPECT_EQ(minute.flows[1].bytes, 6000u);
  EXPECT_EQ(minute.flows[1].cnps, 18u);
  EXPECT_EQ(minute.flows[1].delay.Count(), 60u);
  EXPECT_EQ(minute.flows[1].hops, static_cast<uint64_t>((kStart + 120 * kSecond) / (60 * kSecond))) << "the last";
  EXPECT_EQ(minute.other_bytes, 30u);
  EXPECT_THAT(minute.jobs, ElementsAre(JobSample{"aa/77/0", absl::StrCat("word at ", kStart + 120 * kSecond)}));
  EXPECT_THAT(minute.collectives, ElementsAre("slow"));
  let_go(absl::Hours(24 * 15));
  then = WorkOf(kStart + 60 * kSecond, kStart + 70 * kSecond);
  EXPECT_EQ(then.tier, Tier::kFiveMinutes);
  ASSERT_THAT(then.samples, SizeIs(1));
  EXPECT_EQ(then.samples[0].flows[0].bytes, 30'000u);
  let_go(absl::Hours(24 * 366));
  EXPECT_THAT(WorkOf(kStart, kStart + 3600 * kSecond).samples, IsEmpty());
}

TEST_P(StoreTest, SequencesInAnyOrderAreEachTakenOnce) {
  std::vector<uint64_t> order(200);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i / 2 + 1;  // each twice
  std::mt19937_64 random(5);
  std::shuffle(order.begin(), order.end(), random);
  size_t taken = 0;
  for (const uint64_t s : order) taken += Append(EventBatch(s, {Event(s, kStart)}));
  EXPECT_EQ(taken, 100u);
  EXPECT_EQ(*store_->Through("a", 7), 100u);
}

TEST_P(StoreTest, TheFleetAsItWasAtATime) {
  Fill(30);
  HostBatch with_document = Batch(31, kStart + 310 * kSecond);
  with_document.documents = {{"inventory", kStart + 310 * kSecond, "two NICs"}};
  Append(with_document);
  for (const bool compacted : {false, true}) {
    if (compacted) CompactAll(kStart + 3600 * kSecond);
    const absl::StatusOr<HostView> view = store_->LatestAt("a", kStart + 125 * kSecond, absl::Minutes(5));
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_THAT(view->paths, ElementsAre(Sample(0, kStart + 120 * kSecond), Sample(1, kStart + 120 * kSecond)));
    EXPECT_THAT(view->documents, IsEmpty());  // it came later
    EXPECT_THAT(store_->LatestAt("a", kStart + 310 * kSecond, absl::Minutes(5))->documents, SizeIs(1));
    EXPECT_THAT(store_->LatestAt("a", kStart + 3000 * kSecond, absl::Minutes(5))->paths, IsEmpty());
    EXPECT_THAT(store_->LatestAt("a", kStart, absl::Minutes(5))->paths, IsEmpty());
    EXPECT_THAT(*store_->TellersAt(kStart + 125 * kSecond), ElementsAre("a"));
    EXPECT_THAT(*store_->TellersAt(kStart + 3000 * kSecond), IsEmpty());
    EXPECT_THAT(*store_->TellersAt(kStart - 300 * kSecond), IsEmpty());
  }
  EXPECT_TRUE(absl::IsNotFound(store_->LatestAt("nobody", kStart, absl::Minutes(5)).status()));
  EXPECT_EQ(store_->Hosts()->at(0).newest_ns, kStart + 310 * kSecond);
}

TEST_P(StoreTest, TheLadderLosesNoSampleAndNoMaximum) {
  for (int i = 1; i <= 360; ++i) {  // an hour
    HostBatch batch = Batch(static_cast<uint64_t>(i), kStart + i * 10 * kSecond, 1);
    if (i == 100) batch.paths[0] = Sample(0, kStart + i * 10 * kSecond, 123456);
    if (i == 200) batch.paths[0].state = PathState::kDead;
    Append(batch);
  }
  for (const bool compacted : {false, true}) {
    if (compacted) CompactAll(kStart + 2 * 3600 * kSecond);
    EXPECT_THAT(Range(kStart, kStart + 3601 * kSecond), SizeIs(360));
    for (const size_t most : {60, 12}) {
      const std::vector<PathSample> coarse = Range(kStart, kStart + 3600 * kSecond + 1, most);
      ASSERT_EQ(coarse.size(), most) << compacted;
      uint64_t sent = 0, samples = 0, max_ns = 0, dead = 0;
      for (const PathSample& s : coarse) {
        sent += s.sent;
        samples += s.queue.Count();
        max_ns = std::max(max_ns, s.queue.max_ns);
        dead += s.state == PathState::kDead ? 1 : 0;
      }
      EXPECT_EQ(sent, 36000u);
      EXPECT_EQ(samples, 360u * 99);
      EXPECT_EQ(max_ns, 123456u);
      EXPECT_EQ(dead, 1u);
    }
  }
}

TEST_P(StoreTest, WhatComesLateIsPlacedWhereItBelongs) {
  for (int i = 1; i <= 120; ++i) {
    if (i % 3 == 0) continue;
    Append(Batch(static_cast<uint64_t>(i), kStart + i * 10 * kSecond, 1));
  }
  CompactAll(kStart + 3 * 3600 * kSecond);
  for (int i = 3; i <= 120; i += 3) Append(Batch(static_cast<uint64_t>(i), kStart + i * 10 * kSecond, 1));
  for (const bool compacted : {false, true}) {
    if (compacted) CompactAll(kStart + 3 * 3600 * kSecond);
    EXPECT_THAT(Range(kStart, kStart + 1201 * kSecond), SizeIs(120));
    const std::vector<PathSample> minutes = Range(kStart, kStart + 1201 * kSecond, 20);
    ASSERT_THAT(minutes, SizeIs(20));
    for (const PathSample& s : minutes) EXPECT_EQ(s.sent, 600u);
  }
}

TEST_P(StoreTest, EventsByTimeHostAndTypeAndResumedWithoutAGap) {
  Append(EventBatch(1, {Event(1, kStart), Event(2, kStart + 5 * kSecond, "move"), Event(3, kStart + 9 * kSecond)}));
  Append(EventBatch(1, {Event(1, kStart + kSecond, "path", "b")}));
  EXPECT_THAT(EventSeqs({.host = "a"}), ElementsAre(1, 2, 3));
  EXPECT_THAT(EventSeqs({.host = "a", .type = "move"}), ElementsAre(2));
  EXPECT_THAT(EventSeqs({.from_ns = kStart + kSecond, .to_ns = kStart + 9 * kSecond}), ElementsAre(2, 1));
  EXPECT_THAT(EventSeqs({.limit = 2, .newest_first = true}), ElementsAre(3, 2));
  EXPECT_THAT(EventSeqs({.host = "nobody"}), IsEmpty());
  EventQuery query{.host = "a", .limit = 2};
  const absl::StatusOr<EventPage> first = store_->Events(query);
  ASSERT_THAT(first->events, SizeIs(2));
  EXPECT_EQ(first->events[1], Event(2, kStart + 5 * kSecond, "move"));
  // One that is older by time and comes later is not missed.
  Append(EventBatch(2, {Event(4, kStart - 100 * kSecond)}));
  query.after = first->next;
  const absl::StatusOr<EventPage> second = store_->Events(query);
  EXPECT_THAT(second->events, ElementsAre(Event(3, kStart + 9 * kSecond), Event(4, kStart - 100 * kSecond)));
  query.after = second->next;
  EXPECT_THAT(store_->Events(query)->events, IsEmpty());
  EXPECT_EQ(store_->Events(query)->next, second->next);
}

TEST_P(StoreTest, FindingsByTimeAndIdTheNewestWordOfEach) {
  const StoredFinding first{.id = 1, .start_ns = kStart, .body = "a"};
  const StoredFinding second{.id = uint64_t{1} << 63, .start_ns = kStart + 5 * kSecond, .body = "b"};
  ASSERT_TRUE(store_->PutFindings({first, second}).ok());
  EXPECT_THAT(*store_->Findings({.open = true}), ElementsAre(second, first));
  StoredFinding over = first;
  over.end_ns = kStart + 8 * kSecond;
  ASSERT_TRUE(store_->PutFindings({over}).ok());
  EXPECT_THAT(*store_->Findings({.open = true}), ElementsAre(second));
  EXPECT_THAT(*store_->Findings({.at_ns = kStart + kSecond}), ElementsAre(over));
  EXPECT_THAT(*store_->Findings({.at_ns = kStart + 6 * kSecond}), ElementsAre(second, over));
  EXPECT_THAT(*store_->Findings({.at_ns = over.end_ns}), ElementsAre(second));
  EXPECT_THAT(*store_->Findings({.id = second.id}), ElementsAre(second));
  EXPECT_THAT(*store_->Findings({}), ElementsAre(second, over));
  EXPECT_THAT(*store_->Findings({.limit = 1}), ElementsAre(second));
}

TEST_P(StoreTest, HopListsByHostAndName) {
  const std::vector<Addr> hops = {Addr::FromV4(1), Addr{}, Addr::FromV4(3)};
  HostBatch batch = Batch(1, kStart);
  batch.hop_lists = {{HopsId(hops), hops}};
  Append(batch);
  EXPECT_EQ(store_->Hops("a", HopsId(hops))->hops, hops);
  EXPECT_TRUE(absl::IsNotFound(store_->Hops("a", 1).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Hops("b", HopsId(hops)).status()));
  EXPECT_THAT(*store_->AllHops("a"), SizeIs(1));
}

TEST_P(StoreTest, RetentionSaysWhatGoesBeforeItGoes) {
  Fill(60);
  Append(EventBatch(61, {Event(1, kStart), Event(2, kStart + 4000 * kSecond)}));
  CompactAll(kStart + 2 * 3600 * kSecond);
  Retention retention;
  retention.tiers[0].age = absl::Minutes(30);
  retention.events.age = absl::Minutes(30);
  EXPECT_THAT(*store_->PlanRetention(kStart + 600 * kSecond, retention), IsEmpty());
  const absl::StatusOr<std::vector<Deletion>> plan = store_->PlanRetention(kStart + 3600 * kSecond, retention);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(*plan, SizeIs(2));
  EXPECT_TRUE(absl::StrContains((*plan)[0].reason, "30m")) << (*plan)[0].reason;
  EXPECT_GT((*plan)[0].bytes, 0u);
  EXPECT_THAT(Range(kStart, kStart + 700 * kSecond), SizeIs(60));  // told only
  ASSERT_TRUE(store_->Delete(*plan).ok());
  EXPECT_THAT(EventSeqs({}), ElementsAre(2));
  const absl::StatusOr<RangeReply> left =
      store_->Range({.host = "a", .from_ns = kStart, .to_ns = kStart + 700 * kSecond, .path = Key(0)});
  EXPECT_EQ(left->tier, Tier::kMinute);  // the next one of the ladder
  EXPECT_THAT(left->samples, SizeIs(10));
  EXPECT_THAT(store_->LatestAt("a", kStart + 125 * kSecond, absl::Minutes(5))->paths, SizeIs(2));
  EXPECT_THAT(*store_->TellersAt(kStart + 125 * kSecond), ElementsAre("a")) << "of what is left";
  Append(Batch(62, kStart + 60 * kSecond));  // later than what is kept: not a new beginning of the past
  EXPECT_THAT(Range(kStart, kStart + 700 * kSecond), SizeIs(10));
}

TEST_P(StoreTest, RetentionBySize) {
  Fill(120, 20);
  CompactAll(kStart + 3 * 3600 * kSecond);
  Retention retention;
  retention.tiers[0].bytes = 1000;
  const int64_t now = kStart + 3 * 3600 * kSecond;
  absl::StatusOr<std::vector<Deletion>> plan = store_->PlanRetention(now, retention);
  ASSERT_THAT(*plan, SizeIs(1));
  EXPECT_TRUE(absl::StrContains((*plan)[0].reason, "1000 are to be kept"));
  ASSERT_TRUE(store_->Delete(*plan).ok());
  plan = store_->PlanRetention(now, retention);
  EXPECT_THAT(*plan, IsEmpty());
  EXPECT_THAT(store_->LatestAt("a", kStart + 1200 * kSecond, absl::Minutes(1))->paths,
              SizeIs(20));  // the newest are there
}

// Findings end and are forgotten where no event is old, too.
TEST_P(StoreTest, OldFindingsGoWithoutOldEvents) {
  const StoredFinding old{.id = 1, .start_ns = kStart, .end_ns = kStart + kSecond, .body = "old"};
  const StoredFinding open{.id = 2, .start_ns = kStart, .body = "open"};
  const StoredFinding late{.id = 3, .start_ns = kStart, .end_ns = kStart + 3000 * kSecond, .body = "late"};
  ASSERT_TRUE(store_->PutFindings({old, open, late}).ok());
  Append(EventBatch(1, {Event(1, kStart + 3599 * kSecond)}));
  Retention retention;
  retention.events.age = absl::Minutes(30);
  const absl::StatusOr<std::vector<Deletion>> plan = store_->PlanRetention(kStart + 3600 * kSecond, retention);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_THAT(*plan, SizeIs(1));
  EXPECT_EQ((*plan)[0].what, "findings");
  ASSERT_TRUE(store_->Delete(*plan).ok());
  EXPECT_THAT(*store_->Findings({}), ElementsAre(open, late));
  EXPECT_THAT(EventSeqs({}), ElementsAre(1));
}

TEST_P(StoreTest, ABadQuestionIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Range({.host = "a", .from_ns = 5, .to_ns = 5}).status()));
}

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreTest,
                         ::testing::Values(Engine{"sqlite",
                                                  [](const std::string& folder) {
                                                    return OpenSqliteStore(folder + "/fleet.db",
                                                                           {.reserve_bytes = 65536});
                                                  }}),
                         [](const auto& test) { return test.param.name; });

// ---- blocks of samples ----

TEST(SampleBlob, ComesBackAsItWas) {
  std::mt19937_64 random(1);
  std::vector<NumberedSample> samples;
  for (int i = 0; i < 3000; ++i) {
    PathSample s{.time_ns = static_cast<int64_t>(random()), .state = static_cast<PathState>(1 + random() % 5)};
    s.hops = random() % 3 == 0 ? random() : 7;
    s.base_ns = random() >> (random() % 64);
    s.sent = static_cast<uint32_t>(random());
    s.lost = static_cast<uint32_t>(random() >> 40);
    for (uint64_t n = random() % 5; n > 0; --n) s.queue.Add(random() >> (random() % 64));
    samples.push_back({random() % 50, s});
  }
  SortSamples(samples);
  const absl::StatusOr<std::vector<NumberedSample>> back = UnpackSamples(PackSamples(samples));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, samples);
  EXPECT_THAT(*UnpackSamples(PackSamples({})), IsEmpty());
}

TEST(SampleBlob, DamageIsDataLoss) {
  const std::string blob = PackSamples({{1, Sample(0, kStart)}, {2, Sample(0, kStart)}});
  for (size_t cut = 0; cut < blob.size(); ++cut) {
    EXPECT_TRUE(absl::IsDataLoss(UnpackSamples(blob.substr(0, cut)).status())) << cut;
  }
}

// ---- SQLite's own ----

TEST_F(SqliteStore, ABlockThatIsDamagedHoldsUpNothing) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Append({WorkBatchOf(1, Work(kStart + 10 * kSecond))}).ok());
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  {
    auto db = Database::Open(folder + "/fleet.db");
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE((*db)->Exec("UPDATE work SET blob = x'ffffffffff7f00' WHERE tier = 0").ok());
  }
  EXPECT_TRUE(absl::IsDataLoss((*store)->Work({"a", kStart, kStart + 600 * kSecond}).status()));
  const WorkSample late = Work(kStart + 20 * kSecond);
  ASSERT_TRUE((*store)->Append({WorkBatchOf(2, late)}).ok());
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  EXPECT_EQ((*store)->work_losses(), (WorkLosses{.damaged = 1}));
  const auto kept = (*store)->Work({"a", kStart, kStart + 600 * kSecond});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->samples, ElementsAre(late));
}

TEST(WorkBlob, DamageIsSaid) {
  std::vector<WorkSample> samples;
  for (int i = 1; i <= 6; ++i) samples.push_back(Work(kStart + i * 10 * kSecond));
  samples[2].collectives = {"x"};
  const std::string blob = PackWork(samples);
  const auto back = UnpackWork(blob);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(*back, testing::ElementsAreArray(samples));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string broken = blob;
    broken[random() % broken.size()] ^= static_cast<char>(1 + random() % 255);
    const auto result = UnpackWork(broken.substr(0, i % 2 == 0 ? broken.size() : random() % broken.size()));
    EXPECT_TRUE(result.ok() || absl::IsDataLoss(result.status())) << result.status();
  }
  EXPECT_TRUE(absl::IsDataLoss(UnpackWork(blob.substr(0, blob.size() / 2)).status()));
}

// 64 flows with 100 samples of their delay each 10 s, as a busy host has them.
TEST(WorkBlob, ABusyHostsDayIsSmall) {
  std::mt19937 random(11);
  std::lognormal_distribution<double> scatter(8.0, 0.7);  // ns; median 3 us
  std::vector<WorkSample> samples;
  for (int i = 1; i <= 60; ++i) {
    WorkSample work = Work(kStart + i * 10 * kSecond);
    const FlowSample like = work.flows[0];
    work.flows.clear();
    for (uint32_t f = 0; f < 64; ++f) {
      work.flows.push_back(like);
      work.flows.back().name.qpn = f;
      work.flows.back().bytes = 5'000'000'000 + random() % 1'000'000'000;
      work.flows.back().delay = PackedSketch();
      for (int d = 0; d < 100; ++d) work.flows.back().delay.Add(static_cast<uint64_t>(scatter(random)));
    }
    samples.push_back(std::move(work));
  }
  const double day = static_cast<double>(PackWork(samples).size()) * 144 / 1e6;
  const double coarse = static_cast<double>(PackWork(CoarsenWork(samples, absl::Seconds(300))).size()) * 144 / 1e6;
  std::printf("64 flows: %.1f MB a day at 10 s, %.2f MB at 300 s\n", day, coarse);
  EXPECT_LT(day, 40);
  EXPECT_LT(coarse, 3);
}

TEST_F(SqliteStore, ASecondServiceOnTheSameFileIsRefused) {
  auto first = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("another cwfleetd has the store"));
  first->reset();
  EXPECT_TRUE(OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0}).ok());
}

// A clock that is 400 days ahead at the service's start.
TEST_F(SqliteStore, AClockThatIsAheadDeletesNothingThatHostsReportedLately) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Append({Batch(1, kStart, 3)}).ok());
  ASSERT_TRUE((*store)->Compact(kStart + 3600 * kSecond).ok());
  Retention week;
  for (Keep& keep : week.tiers) keep.age = absl::Hours(24 * 7);
  week.events.age = absl::Hours(24 * 7);
  const int64_t ahead = kStart + absl::ToInt64Nanoseconds(absl::Hours(24 * 400));
  EXPECT_THAT(*(*store)->PlanRetention(ahead, week), IsEmpty());
}

// As above, of hosts that have events and no paths.
TEST_F(SqliteStore, AClockThatIsAheadDeletesNoEventsOfHostsWithoutPaths) {
  auto store = OpenSqliteStore(folder + "/fleet.db", {.reserve_bytes = 0});
  ASSERT_TRUE(store.ok()) << store.status();
  HostBatch batch = Batch(1, kStart, 0);
  batch.events = {
      {.host = batch.host, .run = batch.run, .seq = 1, .time_ns = kStart, .type = "agent", .payload = "started"}};
  ASSERT_TRUE((*store)->Append({batch}).ok());
  Retention week;
  week.events.age = absl::Hours(24 * 7);
  const int64_t ahead = kStart + absl::ToInt64Nanoseconds(absl::Hours(24 * 400));
  EXPECT_THAT(*(*store)->PlanRetention(ahead, week), IsEmpty());
  EXPECT_THAT(*(*store)->PlanRetention(kStart + absl::ToInt64Nanoseconds(absl::Hours(24 * 8)), week), IsEmpty())
      << "an hour behind the newest at most";
}

TEST_F(SqliteStore, AFileThatIsNoDatabaseIsSaid) {
  FILE* file = fopen((folder + "/fleet.db").c_str(), "w");
  for (int i = 0; i < 1000; ++i) fputs("no database ", file);
  fclose(file);
  EXPECT_TRUE(absl::IsDataLoss(OpenSqliteStore(folder + "/fleet.db").status()));
}

}  // namespace
}  // namespace cw::fleet
