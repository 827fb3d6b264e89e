// SPDX-License-Identifier: Apache-2.0
// From what an agent saw to the store and back, without sockets: the production builder, spool, delivery and ingest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "userspace/api/calm_records.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/uplink/batch_builder.h"
#include "userspace/uplink/delivery.h"

namespace cw::uplink {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRun = 5;
const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

PathSeen Path(uint32_t peer, bool reverse = false) {
  PathSeen path{.local = Addr::FromV4(0x0a000001), .remote = Addr::FromV4(0x0a000100 + peer), .peer = "b"};
  path.udp_port = 50000;
  path.reverse = reverse;
  path.state = wire::PATH_STATE_UP;
  path.hops = std::vector<Addr>{Addr::FromV4(1), Addr{}, Addr::FromV4(peer)};
  for (int i = 0; i < 50; ++i) path.queue.Add(1000 + 100 * i);
  path.base_ns = 4000;
  path.known = 51;
  path.lost = 1;
  return path;
}

wire::Event Event(uint64_t seq) {
  wire::Event event;
  event.set_seq(seq);
  event.set_type("path");
  event.set_text("a path died");
  event.set_time_unix_ns(absl::ToUnixNanos(kStart));
  return event;
}

Interval At(absl::Time now) {
  return {.from_ns = absl::ToUnixNanos(now - absl::Seconds(10)), .to_ns = absl::ToUnixNanos(now), .bound_ns = 1000};
}

TEST(UplinkPack, KeepsWhatASketchSays) {
  telemetry::Sketch sketch;
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) sketch.Add(5000 + static_cast<int64_t>(random() % 40000));
  for (const int64_t base : {int64_t{0}, int64_t{4999}, int64_t{9000}}) {
    const telemetry::Sketch above = sketch.Above(base);
    const PackedSketch packed = PackOf(above, 250);
    const absl::StatusOr<PackedSketch> back = PackedSketch::Unpack(packed.Pack());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->Count(), 2000u);
    EXPECT_EQ(back->max_ns, static_cast<uint64_t>(above.max_ns()));
    EXPECT_NEAR(back->QuantileNs(0.5), above.QuantileNs(0.5), 0.05 * above.QuantileNs(0.5));
  }
  telemetry::Sketch quiet;
  for (int i = 0; i < 10; ++i) quiet.Add(i);
  EXPECT_EQ(PackOf(quiet, 250).buckets.size(), 1u) << "no queue that can be told from none";
  EXPECT_TRUE(PackOf(telemetry::Sketch(), 250).empty());
}

TEST(UplinkBuilder, SendsWhatSeldomChangesOnce) {
  BatchBuilder builder("a", kRun);
  const std::vector<PathSeen> paths = {Path(1), Path(1, true), Path(2)};
  const wire::Batch first = builder.Detail(paths, {}, {}, At(kStart));
  EXPECT_EQ(first.definitions().paths_size(), 3);
  EXPECT_EQ(first.definitions().hop_lists_size(), 2) << "two of the three have the same hops";
  EXPECT_EQ(first.usual_sent(), 51u);
  const wire::Batch second = builder.Detail(paths, {}, {}, At(kStart + absl::Seconds(10)));
  EXPECT_FALSE(second.has_definitions());
  EXPECT_EQ(second.sequence(), 2u);
  EXPECT_EQ(second.paths(0).lost(), 1u);
  std::vector<PathSeen> changed = paths;
  changed[2].hops = std::vector<Addr>{Addr::FromV4(9)};
  const wire::Batch third = builder.Detail(changed, {}, {}, At(kStart + absl::Seconds(20)));
  ASSERT_EQ(third.definitions().paths_size(), 1);
  EXPECT_EQ(third.definitions().paths(0).path(), third.paths(2).path());
  builder.DefineAgain();
  EXPECT_EQ(builder.Detail(paths, {}, {}, At(kStart + absl::Seconds(30))).definitions().paths_size(), 3);
}

TEST(UplinkBuilder, SplitsEventsBySize) {
  BatchBuilder builder("a", kRun);
  std::vector<wire::Event> events;
  for (uint64_t seq = 1; seq <= 100; ++seq) {
    events.push_back(Event(seq));
    events.back().set_text(std::string(8000, 'x'));
  }
  const std::vector<wire::Batch> batches = builder.Events(events, At(kStart));
  EXPECT_GT(batches.size(), 2u);
  uint64_t seen = 0;
  for (const wire::Batch& batch : batches) {
    EXPECT_LT(batch.ByteSizeLong(), kMaxRecordBytes / 2);
    for (const wire::FleetEvent& event : batch.events()) EXPECT_EQ(event.event().seq(), ++seen);
  }
  EXPECT_EQ(seen, 100u);
}

// 160 paths, each direction told, idle: ten probes a second, delays as stamps in software scatter them, and minima that
// wander.
TEST(UplinkBuilder, AQuietHostCostsLittle) {
  BatchBuilder builder("node17", kRun);
  std::mt19937 random(11);
  std::lognormal_distribution<double> scatter(6.0, 0.8);  // ns; median 400
  double bytes = 0, in_records = 0;
  constexpr int kIntervals = 30;
  for (int interval = 0; interval <= kIntervals; ++interval) {
    std::vector<PathSeen> paths;
    for (uint32_t p = 0; p < 160; ++p) {
      for (const bool reverse : {false, true}) {
        PathSeen path = Path(p, reverse);
        path.queue.Clear();
        for (int i = 0; i < 100; ++i) path.queue.Add(static_cast<int64_t>(scatter(random)));
        path.known = 95 + p % 8;  // rounds are settled when they are
        path.lost = 0;
        path.base_ns = 4000 + 10 * p + random() % 80;
        paths.push_back(std::move(path));
      }
    }
    wire::Batch batch = builder.Detail(paths, {}, {}, At(kStart + interval * absl::Seconds(10)));
    const wire::Batch plain = batch;
    api::PackCalmRecords(batch);
    EXPECT_EQ(batch.paths_size(), 0);
    if (interval == 0) continue;  // definitions
    bytes += static_cast<double>(batch.ByteSizeLong());
    in_records += static_cast<double>(plain.ByteSizeLong());
    ASSERT_TRUE(api::UnpackCalmRecords(320, batch).ok());
    EXPECT_EQ(batch.SerializeAsString(), plain.SerializeAsString());
  }
  const double rate = bytes / kIntervals / 10;
  std::printf("160 paths, both directions, no traffic: %.0f B/s; as records %.0f\n", rate,
              in_records / kIntervals / 10);
  EXPECT_LT(rate, 400);
}

TEST(UplinkBuilder, OnlyRecordsThatSayNoMoreArePacked) {
  BatchBuilder builder("a", kRun);
  std::vector<PathSeen> paths;
  for (uint32_t p = 1; p <= 40; ++p) {
    paths.push_back(Path(p));
    paths.back().lost = 0;
  }
  paths[5].lost = 1;
  paths[7].state = wire::PATH_STATE_DEAD;
  // Numbers follow the order of their first appearance, not that of the table.
  const std::vector<PathSeen> later(paths.begin() + 20, paths.end());
  (void)builder.Detail(later, {}, {}, At(kStart - absl::Seconds(10)));
  wire::Batch batch = builder.Detail(paths, {}, {}, At(kStart));
  const wire::Batch plain = batch;
  api::PackCalmRecords(batch);
  ASSERT_EQ(batch.paths_size(), 2);
  EXPECT_EQ(batch.paths(0).lost(), 1u);
  EXPECT_EQ(batch.paths(1).state(), wire::PATH_STATE_DEAD);
  wire::Batch few = batch;
  EXPECT_TRUE(absl::IsInvalidArgument(api::UnpackCalmRecords(39, few)));
  EXPECT_EQ(few.SerializeAsString(), batch.SerializeAsString()) << "nothing is half unpacked";
  ASSERT_TRUE(api::UnpackCalmRecords(40, batch).ok());
  EXPECT_EQ(batch.paths_size(), 40);
  *batch.add_paths() = batch.paths(39);
  api::PackCalmRecords(batch);
  EXPECT_EQ(batch.paths_size(), 4) << "what stands twice stays in its order";
}

class UplinkTest : public ::testing::Test {
 protected:
  UplinkTest() {
    std::string name = (fs::temp_directory_path() / "cw_uplink_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    spool_ = *Spool::Open(folder_ + "/spool", SpoolLimits{.sync_events = false}, now_);
    delivery_ = std::make_unique<Delivery>(*spool_, "a");
    store_ = *fleet::OpenSqliteStore(folder_ + "/store", {.reserve_bytes = 0});
    ingest_ = std::make_unique<fleet::Ingest>(*store_, "one", fleet::IngestLimits{});
  }
  ~UplinkTest() override {
    ingest_.reset();
    store_.reset();
    fs::remove_all(folder_);
  }

  void Append(const wire::Batch& batch, Kind kind) {
    ASSERT_TRUE(spool_->Append(kind, batch.run(), batch.sequence(), batch.SerializeAsString(), now_).ok());
  }
  // As the agent does: an event at once, paths now and then.
  void Live(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += absl::Seconds(1);
      const std::vector<wire::Event> one = {Event(++seq_)};
      for (const wire::Batch& batch : builder_.Events(one, At(now_))) Append(batch, Kind::kEvent);
      if (i % 3 == 0) Append(builder_.Detail(paths_, {}, {}, At(now_)), Kind::kDetail);
    }
  }
  void Connect() {
    delivery_->Begin(now_);
    wire::Hello hello;
    hello.set_host("a");
    hello.set_run(kRun);
    absl::StatusOr<wire::Welcome> welcome = ingest_->Connect(hello, {.names = {"a"}}, now_);
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    if (welcome->send_definitions()) Define();
    welcome->set_takes_calm_paths(true);
    ASSERT_TRUE(delivery_->OnWelcome(kRun, *welcome).ok());
  }
  void Define() {
    builder_.DefineAgain();
    definitions_ = builder_.Known();
  }
  void Hear(const wire::Ack& ack) {
    const absl::StatusOr<bool> define = delivery_->OnAck(ack, now_);
    ASSERT_TRUE(define.ok()) << define.status();
    if (*define) Define();
  }
  // Rounds of sending and storing until nothing is left; `lose` says of each batch whether the service never sees it.
  void Deliver(const std::function<bool()>& lose = [] { return false; }) {
    for (int round = 0; round < 2000; ++round) {
      now_ = std::max(now_ + absl::Milliseconds(100), std::min(delivery_->PausedUntil(), now_ + absl::Seconds(10)));
      auto batches = delivery_->Next(now_, kRun, &definitions_);
      ASSERT_TRUE(batches.ok()) << batches.status();
      for (wire::Batch& batch : *batches) {
        if (lose()) continue;
        ASSERT_TRUE(api::UnpackCalmRecords(20'000, batch).ok());
        if (const std::optional<wire::Ack> ack = ingest_->Enqueue("a", batch, now_)) Hear(*ack);
      }
      for (const auto& [host, ack] : ingest_->Flush(now_)) Hear(ack);
      if (delivery_->Stuck(now_)) Connect();
      if (spool_->state().records == 0) return;
    }
    FAIL() << spool_->state().records << " records are left";
  }
  std::vector<uint64_t> StoredSeqs() {
    std::vector<uint64_t> seqs;
    const auto stored = store_->Events({.limit = 100'000});
    for (const fleet::StoredEvent& e : stored->events) seqs.push_back(e.seq);
    return seqs;
  }
  std::vector<uint64_t> AllSeqs() const {
    std::vector<uint64_t> seqs;
    for (uint64_t seq = 1; seq <= seq_; ++seq) seqs.push_back(seq);
    return seqs;
  }

  absl::Time now_ = kStart;
  std::string folder_;
  std::unique_ptr<Spool> spool_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<fleet::Store> store_;
  std::unique_ptr<fleet::Ingest> ingest_;
  BatchBuilder builder_{"a", kRun};
  wire::Definitions definitions_;
  std::vector<PathSeen> paths_ = {Path(1), Path(2)};
  uint64_t seq_ = 0;
};

TEST_F(UplinkTest, WhatIsSeenIsStored) {
  Connect();
  Live(30);
  Deliver();
  EXPECT_EQ(StoredSeqs(), AllSeqs());
  const fleet::LiveHost* host = ingest_->Find("a");
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(host->paths.size(), 2u);
  EXPECT_EQ(host->records_left_out, 0u);
  EXPECT_EQ(host->paths.begin()->second.lost, 1u);
}

// 0: not known; 1: full size; otherwise the largest that arrives.
TEST_F(UplinkTest, WhetherPacketsOfFullSizeArriveIsKnownOrNot) {
  Connect();
  const auto sizes = [&] {
    now_ += absl::Seconds(1);
    Append(builder_.Detail(paths_, {}, {}, At(now_)), Kind::kDetail);
    Deliver();
    std::vector<uint32_t> all;
    for (const auto& [key, sample] : ingest_->Find("a")->paths)
      all.push_back(sample.full_size ? 1 : sample.largest_bytes);
    return all;
  };
  paths_ = {Path(1), Path(2), Path(3)};
  EXPECT_THAT(sizes(), ::testing::ElementsAre(0, 0, 0)) << "nobody was asked";
  paths_[0].full_size = true;
  paths_[1].largest_bytes = 1484;
  EXPECT_THAT(sizes(), ::testing::ElementsAre(1, 1484, 0));
  for (PathSeen& path : paths_) path.full_size = true, path.largest_bytes = 0;
  EXPECT_THAT(sizes(), ::testing::ElementsAre(1, 1, 1));
}

TEST_F(UplinkTest, AServiceThatStartsAnewHasAllOfItOnceAndUnderstandsIt) {
  Connect();
  Live(20);
  Deliver();
  Live(20);
  ingest_ = std::make_unique<fleet::Ingest>(*store_, "two", fleet::IngestLimits{});
  Live(20);
  Connect();
  Deliver();
  EXPECT_EQ(StoredSeqs(), AllSeqs());
  EXPECT_EQ(ingest_->Find("a")->records_left_out, 0u) << "batches made before know no definitions by themselves";
}

// What was spooled while the service was away names flows that a new one was never told of.
TEST_F(UplinkTest, FlowsOfASpooledBatchAreUnderstoodByAServiceThatStartsAnew) {
  for (uint64_t flow = 1; flow <= 3; ++flow) {
    wire::FlowName& name = *definitions_.add_flows();
    name.set_flow(static_cast<uint32_t>(flow));
    name.set_local(BytesOf(Addr::FromV4(0x0a000001)));
    name.set_remote(BytesOf(Addr::FromV4(0x0a000101)));
  }
  const wire::Definitions names = definitions_;
  wire::Batch batch = builder_.Begin(At(now_));
  for (const wire::FlowName& name : names.flows()) {
    wire::FlowRecord& record = *batch.add_flows();
    record.set_flow(name.flow());
    record.set_bytes(1000);
  }
  Append(batch, Kind::kDetail);
  Connect();
  definitions_ = names;
  Deliver();
  ASSERT_NE(ingest_->Find("a")->work, nullptr);
  EXPECT_EQ(ingest_->Find("a")->work->flows().flows.size(), 3u);
  EXPECT_EQ(ingest_->Find("a")->records_left_out, 0u);
  EXPECT_EQ(definitions_.flows_size(), 0) << "each is sent once";
}

// It keeps what it does not know for a year.
TEST_F(UplinkTest, AnEarlierServiceIsToldOfNoWork) {
  wire::Batch batch = builder_.Begin(At(now_));
  batch.add_flows()->set_flow(1);
  batch.add_jobs()->set_id("aa");
  batch.add_collectives()->set_job_id("aa");
  batch.mutable_other_flows()->set_flows(3);
  batch.mutable_definitions()->add_flows()->set_flow(1);
  Append(batch, Kind::kDetail);
  const auto sent = [&](bool takes_work) {
    delivery_->Begin(now_);
    wire::Welcome welcome;
    welcome.set_takes_work(takes_work);
    EXPECT_TRUE(delivery_->OnWelcome(kRun, welcome).ok());
    const auto batches = delivery_->Next(now_, kRun, nullptr);
    EXPECT_THAT(*batches, testing::SizeIs(1)) << "its number is told";
    return batches->at(0);
  };
  const wire::Batch earlier = sent(false);
  EXPECT_EQ(earlier.flows_size() + earlier.jobs_size() + earlier.collectives_size(), 0);
  EXPECT_FALSE(earlier.has_other_flows());
  EXPECT_EQ(earlier.definitions().flows_size(), 0);
  EXPECT_EQ(sent(true).flows_size(), 1);
}

TEST_F(UplinkTest, DefinitionsThatDoNotFitIntoOneBatchAreSpreadOverSeveral) {
  paths_.clear();
  for (uint32_t p = 1; p <= 6000; ++p) {
    paths_.push_back(Path(p));
    paths_.back().peer = std::string(200, 'p');
    paths_.back().queue.Clear();
  }
  const absl::Span<const PathSeen> all(paths_);
  for (size_t at = 0; at < all.size(); at += 2000)
    Append(builder_.Detail(all.subspan(at, 2000), {}, {}, At(now_)), Kind::kDetail);
  Connect();
  Deliver();
  const std::vector<PathSeen> few(paths_.begin(), paths_.begin() + 10);
  ingest_ = std::make_unique<fleet::Ingest>(*store_, "two", fleet::IngestLimits{});
  paths_ = few;
  Live(20);
  Connect();
  Deliver();
  EXPECT_EQ(StoredSeqs(), AllSeqs()) << "none was refused for what was added to its batch";
  EXPECT_EQ(ingest_->Find("a")->refused, 0u);
}

TEST_F(UplinkTest, LostBatchesAreSentAgainUntilAllAreThere) {
  std::mt19937 random(3);
  Connect();
  for (int i = 0; i < 10; ++i) {
    Live(12);
    Deliver([&] { return random() % 4 == 0; });
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(StoredSeqs(), AllSeqs());
}

TEST_F(UplinkTest, DroppedDetailHoldsNothingUp) {
  spool_.reset();
  spool_ = *Spool::Open(folder_ + "/spool", SpoolLimits{.records = 40, .sync_events = false}, now_);
  delivery_ = std::make_unique<Delivery>(*spool_, "a");
  Live(35);
  EXPECT_GT(spool_->state().dropped_detail, 0u);
  EXPECT_EQ(spool_->state().dropped_events, 0u);
  Connect();
  Deliver();
  EXPECT_EQ(StoredSeqs(), AllSeqs());
  EXPECT_EQ(ingest_->Find("a")->dropped_detail, spool_->state().dropped_detail);
}

TEST_F(UplinkTest, BatchesOfAnotherHostNameAreDropped) {
  BatchBuilder renamed("old", 4);
  const std::vector<wire::Event> one = {Event(1)};
  for (const wire::Batch& batch : renamed.Events(one, At(now_))) Append(batch, Kind::kEvent);
  Connect();
  Live(5);
  Deliver();
  EXPECT_EQ(StoredSeqs(), AllSeqs());
  EXPECT_EQ(delivery_->refused(), 1u);
}

TEST_F(UplinkTest, APauseIsKept) {
  Connect();
  Live(3);
  wire::Ack ack;
  ack.set_run(kRun);
  ack.set_again(true);
  ack.set_pause_s(5);
  Hear(ack);
  EXPECT_TRUE(delivery_->Next(now_ + absl::Seconds(4), kRun, nullptr)->empty());
  EXPECT_FALSE(delivery_->Next(now_ + absl::Seconds(6), kRun, nullptr)->empty());
}

}  // namespace
}  // namespace cw::uplink
