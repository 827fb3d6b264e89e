// SPDX-License-Identifier: Apache-2.0
// The conformance suite: what every engine of the fleet's store does. An engine joins by a factory at the end.
#include "userspace/fleet/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <functional>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/fleet/store/sample_blob.h"
#include "userspace/fleet/store/sqlite/schema.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/fleet/store/work_blob.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStart = 1'800'000'000 * kSecond;  // a full hour

// How an engine is opened on what is in a folder; a second time it finds what the first left.
struct Engine {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Store>>(const std::string& folder)> open;
};

PathKey Key(int number) {
  return {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a010000 + static_cast<uint32_t>(number)), 0xc000, number % 2 == 1};
}

PathSample Sample(int path, int64_t time_ns, uint64_t queue_ns = 100) {
  PathSample s{.key = Key(path), .time_ns = time_ns, .hops = 9, .base_ns = 5000, .sent = 100, .lost = 1};
  s.queue.Add(queue_ns, 99);
  return s;
}

HostBatch Batch(uint64_t sequence, int64_t time_ns, int paths = 2, const std::string& host = "a") {
  HostBatch batch{.host = host, .run = 7, .sequence = sequence};
  for (int p = 0; p < paths; ++p) batch.paths.push_back(Sample(p, time_ns));
  return batch;
}

StoredEvent Event(uint64_t seq, int64_t time_ns, const std::string& type = "path", const std::string& host = "a") {
  return {.host = host,
          .run = 7,
          .seq = seq,
          .time_ns = time_ns,
          .bound_ns = 5,
          .type = type,
          .severity = 3,
          .payload = absl::StrCat("p", seq)};
}

HostBatch EventBatch(uint64_t sequence, std::vector<StoredEvent> events) {
  HostBatch batch{.host = events.at(0).host, .run = 7, .sequence = sequence};
  batch.events = std::move(events);
  return batch;
}

// Ten seconds that end then: two flows of a job's rank, of which one changes its path each minute.
WorkSample Work(int64_t time_ns) {
  WorkSample work{.from_ns = time_ns - 10 * kSecond, .time_ns = time_ns, .other_flows = 2, .other_bytes = 5};
  for (uint32_t f = 0; f < 2; ++f) {
    FlowSample flow{.name = {.local = Addr::FromV4(0x0a000001),
                             .remote = Addr::FromV4(0x0a000100 + f),
                             .qpn = 7 + f,
                             .peer_qpn = 8,
                             .pid = 77,
                             .peer = "b",
                             .process = "python3",
                             .label = "llm"},
                    .udp_port = 0xc000,
                    .hops = f == 0 ? 9 : static_cast<uint64_t>(time_ns / (60 * kSecond)),
                    .bytes = 1000,
                    .retransmits = 1,
                    .ce = 2,
                    .cnps = 3};
    flow.delay.Add(4000 + 100 * f, 10);
    work.flows.push_back(std::move(flow));
  }
  work.jobs = {{"aa/77/0", absl::StrCat("word at ", time_ns)}};
  return work;
}

HostBatch WorkBatchOf(uint64_t sequence, WorkSample work) {
  HostBatch batch{.host = "a", .run = 7, .sequence = sequence};
  batch.work = std::move(work);
  return batch;
}

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

struct SqliteStore : ::testing::Test {
  SqliteStore() {
    std::string name = (fs::temp_directory_path() / "cw_sqlite_XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  ~SqliteStore() override { fs::remove_all(folder); }
  std::string folder;
};

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

TEST_F(SqliteStore, OldSchemasMigrateAndNewerOnesAreRefused) {
  auto db = Database::Open(folder + "/x.db");
  ASSERT_TRUE(db.ok());
  const char* const first[] = {"CREATE TABLE t(a); INSERT INTO t VALUES (5);"};
  const char* const second[] = {first[0], "ALTER TABLE t ADD COLUMN b DEFAULT 6;"};
  ASSERT_TRUE(Migrate(**db, first).ok());
  ASSERT_TRUE(Migrate(**db, second).ok());
  ASSERT_TRUE(Migrate(**db, second).ok());  // nothing to do
  EXPECT_EQ(*(*db)->Number("SELECT a * 10 + b FROM t"), 56);
  const absl::Status refused = Migrate(**db, first);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  const char* const broken[] = {first[0], second[1], "CREATE TABLE u(a); NONSENSE;"};
  EXPECT_FALSE(Migrate(**db, broken).ok());
  EXPECT_EQ(*(*db)->Number("SELECT count(*) FROM sqlite_master WHERE name = 'u'"), 0);  // all of a step or nothing
}

// As version 2 left it.
TEST_F(SqliteStore, AStoreOfVersion2KeepsItsHostsAndTakesOrders) {
  {
    auto db = Database::Open(folder + "/fleet.db");
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE(Migrate(**db, SchemaSteps().first(2)).ok());
    ASSERT_TRUE((*db)->Exec("INSERT INTO host(name, newest_ns) VALUES ('h1', 9)").ok());
  }
  auto store = OpenSqliteStore(folder + "/fleet.db");
  ASSERT_TRUE(store.ok()) << store.status();
  const auto hosts = (*store)->Hosts();
  ASSERT_THAT(*hosts, SizeIs(1));
  EXPECT_EQ((*hosts)[0].newest_ns, 9);
  EXPECT_EQ((*hosts)[0].facts, (HostFacts{.host = "h1"}));
  EXPECT_TRUE((*store)->PutOrder({"drain", 1, "x"}).ok());
}

TEST_F(SqliteStore, AFileThatIsNoDatabaseIsSaid) {
  FILE* file = fopen((folder + "/fleet.db").c_str(), "w");
  for (int i = 0; i < 1000; ++i) fputs("no database ", file);
  fclose(file);
  EXPECT_TRUE(absl::IsDataLoss(OpenSqliteStore(folder + "/fleet.db").status()));
}

}  // namespace
}  // namespace cw::fleet
