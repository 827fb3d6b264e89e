// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/ingest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_failing_store.h"
#include "userspace/fleet/ingest/host_name.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kRun = 42;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string V4(uint32_t host_order) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(host_order >> shift);
  return bytes;
}

pb::Hello Hello(const std::string& host = "a", uint64_t run = kRun) {
  pb::Hello hello;
  hello.set_host(host);
  hello.set_run(run);
  return hello;
}

// A batch with two paths; the first of a run defines them.
pb::Batch Batch(uint64_t sequence, const std::string& host = "a", uint64_t run = kRun) {
  pb::Batch batch;
  batch.set_host(host);
  batch.set_run(run);
  batch.set_sequence(sequence);
  batch.set_from_ns(absl::ToUnixNanos(kNow - absl::Seconds(20)) + static_cast<int64_t>(sequence));
  batch.set_to_ns(absl::ToUnixNanos(kNow - absl::Seconds(10)) + static_cast<int64_t>(sequence));
  batch.set_usual_sent(100);
  const std::vector<Addr> hops = {Addr::FromV4(1), Addr{}, Addr::FromV4(2)};
  if (sequence == 1) {
    pb::HopList* list = batch.mutable_definitions()->add_hop_lists();
    list->set_id(HopsId(hops));
    for (const std::string& address : {V4(1), std::string(), V4(2)}) list->add_address(address);
  }
  for (uint32_t p = 1; p <= 2; ++p) {
    if (sequence == 1) {
      pb::PathName* name = batch.mutable_definitions()->add_paths();
      name->set_path(p);
      name->set_local(V4(0x0a000001));
      name->set_remote(V4(0x0a000100 + p));
      name->set_udp_port(0xc001);
      name->set_hops(HopsId(hops));
    }
    PackedSketch queue;
    queue.Add(100 * p, 90);
    pb::PathRecord* path = batch.add_paths();
    path->set_path(p);
    path->set_queue(queue.Pack());
    path->set_base_ns(5000);
    path->set_lost(3);
  }
  return batch;
}

pb::FleetEvent Event(uint64_t seq) {
  pb::FleetEvent event;
  event.mutable_event()->set_seq(seq);
  event.mutable_event()->set_type("path");
  event.set_time_ns(absl::ToUnixNanos(kNow));
  return event;
}

class IngestTest : public ::testing::Test {
 protected:
  IngestTest() {
    store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
    Restart();
  }
  void Restart() { ingest_ = std::make_unique<Ingest>(*store_, "one", limits_); }
  pb::Welcome Connect(const std::string& host = "a", uint64_t run = kRun) {
    absl::StatusOr<pb::Welcome> welcome = ingest_->Connect(Hello(host, run), {.names = {host}}, kNow);
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return welcome.value_or(pb::Welcome());
  }
  // What comes back for one batch, at once or after the store.
  pb::Ack Send(const pb::Batch& batch, const std::string& host = "a") {
    const std::optional<pb::Ack> now = ingest_->Enqueue(host, batch, kNow);
    if (now.has_value()) return *now;
    const auto acks = ingest_->Flush(kNow);
    EXPECT_THAT(acks, SizeIs(1));
    return acks.empty() ? pb::Ack() : acks[0].second;
  }

  IngestLimits limits_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Ingest> ingest_;
};

TEST(HostName, ACertificateSpeaksForItsOwnNamesOnly) {
  EXPECT_TRUE(MaySpeakFor({"node1.rack2", "node1"}, "node1").ok());
  EXPECT_TRUE(MaySpeakFor({"Node1"}, "node1").ok());
  for (const char* other : {"node2", "node11", "node1.rack2", "", "no de", "../x", "a..b"}) {
    EXPECT_FALSE(MaySpeakFor({"node1", "*.rack2", "*"}, other).ok()) << other;
  }
  EXPECT_TRUE(absl::StrContains(MaySpeakFor({"node1"}, "node2").message(), "for node1, not for node2"));
}

TEST(Quota, ABurstAndThenARate) {
  Quota quota({.bytes_per_s = 100, .burst_bytes = 1000});
  EXPECT_EQ(quota.Take(1000, kNow), absl::ZeroDuration());
  EXPECT_EQ(quota.Take(50, kNow), absl::Milliseconds(500));
  EXPECT_EQ(quota.Take(50, kNow + absl::Milliseconds(500)), absl::ZeroDuration());
  EXPECT_GT(quota.Take(1, kNow), absl::ZeroDuration());                          // a clock that goes back gives nothing
  EXPECT_EQ(quota.Take(5000, kNow + absl::Seconds(100)), absl::ZeroDuration());  // all there is, not never
}

TEST_F(IngestTest, ABatchIsAcknowledgedWhenTheStoreHasItAndShownAsItIs) {
  EXPECT_TRUE(Connect().send_definitions());
  const pb::Ack ack = Send(Batch(1));
  EXPECT_EQ(ack.through_sequence(), 1u);
  EXPECT_THAT(ack.refusals(), SizeIs(0));
  EXPECT_EQ(store_->Through("a", kRun).value(), 1u);
  const LiveHost* live = ingest_->Find("a");
  ASSERT_NE(live, nullptr);
  ASSERT_THAT(live->paths, SizeIs(2));
  const PathSample& path = live->paths.begin()->second;
  EXPECT_EQ(path.sent, 100u);
  EXPECT_EQ(path.lost, 3u);
  EXPECT_EQ(path.state, PathState::kUp);
  EXPECT_EQ(store_->Hops("a", path.hops)->hops.size(), 3u);
  EXPECT_FALSE(Connect().send_definitions());
  EXPECT_EQ(Connect().acknowledged_sequence(), 1u);
}

pb::FlowName NameOfFlow(uint32_t number) {
  pb::FlowName name;
  name.set_flow(number);
  name.set_local(V4(0x0a000001));
  name.set_remote(V4(0x0a000101));
  name.set_qpn(70 + number);
  name.set_pid(5);
  name.set_peer("b");
  name.set_label("llm");
  return name;
}

pb::FlowRecord FlowOf(uint32_t number, uint64_t bytes = 1000, uint32_t path = 1) {
  pb::FlowRecord flow;
  flow.set_flow(number);
  flow.set_path(path);
  flow.set_bytes(bytes);
  return flow;
}

pb::Job JobOf(int rank) {
  pb::Job job;
  job.set_id("aa");
  job.set_pid(5);
  job.set_rank(rank);
  job.set_ranks(8);
  return job;
}

TEST_F(IngestTest, FlowsJobsAndCollectivesAreLiveAndKept) {
  Connect();
  pb::Batch batch = Batch(1);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  *batch.add_flows() = FlowOf(1);
  *batch.add_jobs() = JobOf(3);
  batch.mutable_other_flows()->set_flows(4);
  pb::Collective& c = *batch.add_collectives();
  c.set_job_id("aa");
  c.set_ranks(8);
  EXPECT_THAT(Send(batch).refusals(), SizeIs(0));
  const std::shared_ptr<const LiveWork> live = ingest_->Find("a")->work;
  ASSERT_NE(live, nullptr);
  ASSERT_THAT(live->flows().flows, SizeIs(1));
  const FlowSample& flow = live->flows().flows[0];
  EXPECT_EQ(flow.name.peer, "b");
  EXPECT_EQ(flow.name.qpn, 71u);
  EXPECT_EQ(flow.udp_port, 0xc001);
  EXPECT_NE(flow.hops, 0u) << "the way that its path takes";
  EXPECT_EQ(live->flows().other_flows, 4u);
  ASSERT_THAT(live->jobs(), SizeIs(1));
  EXPECT_EQ(live->jobs().begin()->second.job.rank(), 3);
  EXPECT_THAT(live->collectives(), SizeIs(1));
  const auto kept = store_->Work({"a", batch.from_ns(), batch.to_ns()});
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_THAT(kept->samples, SizeIs(1));
  EXPECT_EQ(kept->samples[0].flows[0], flow);
  EXPECT_THAT(kept->samples[0].jobs, SizeIs(1));

  // What is not told again holds no longer; those who look at it keep what they have.
  pb::Batch later = Batch(2);
  later.set_to_ns(batch.to_ns() + absl::ToInt64Nanoseconds(absl::Seconds(80)));
  *later.add_jobs() = JobOf(4);
  Send(later);
  EXPECT_THAT(ingest_->Find("a")->work->flows().flows, SizeIs(0));
  EXPECT_THAT(ingest_->Find("a")->work->jobs(), SizeIs(1));
  EXPECT_THAT(live->flows().flows, SizeIs(1));
}

TEST_F(IngestTest, ACollectiveStandsAsLongAsItIsTold) {
  Connect();
  const auto tell = [&](uint64_t sequence, int after_s, pb::Collective::State state) {
    pb::Batch batch = Batch(sequence);
    batch.set_to_ns(batch.to_ns() + absl::ToInt64Nanoseconds(absl::Seconds(after_s)));
    *batch.add_jobs() = JobOf(0);
    if (state == pb::Collective::STATE_UNSPECIFIED) return Send(batch);
    pb::Collective& c = *batch.add_collectives();
    c.set_job_id("aa");
    c.set_ranks(8);
    c.set_seq(state == pb::Collective::STATE_DONE ? 1 : 2);
    c.set_state(state);
    return Send(batch);
  };
  tell(1, 0, pb::Collective::STATE_DONE);
  tell(2, 0, pb::Collective::STATE_STALLED);
  tell(3, 20, pb::Collective::STATE_UNSPECIFIED);
  EXPECT_THAT(ingest_->Find("a")->work->collectives(), SizeIs(2));
  tell(4, 30, pb::Collective::STATE_UNSPECIFIED);
  ASSERT_THAT(ingest_->Find("a")->work->collectives(), SizeIs(1));
  EXPECT_EQ(ingest_->Find("a")->work->collectives().begin()->second.collective.seq(), 1u) << "that it was slow stays";
}

TEST_F(IngestTest, AFlowThatWasNeverNamedAsksForDefinitions) {
  Connect();
  Send(Batch(1));
  pb::Batch batch = Batch(2);
  *batch.add_flows() = FlowOf(9);
  EXPECT_TRUE(Send(batch).send_definitions());
  batch = Batch(3);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(9);
  *batch.add_flows() = FlowOf(9);
  *batch.add_flows() = FlowOf(9, 10, 77);
  const pb::Ack ack = Send(batch);
  EXPECT_TRUE(ack.send_definitions()) << "its path was not named";
  EXPECT_THAT(ingest_->Find("a")->work->flows().flows, SizeIs(1));
}

// Each by itself is left out, and the good ones beside them are taken.
TEST_F(IngestTest, WorkThatCannotBeIsLeftOut) {
  Connect();
  pb::Batch batch = Batch(1);
  const auto define = [&](const std::function<void(pb::FlowName&)>& spoil) {
    pb::FlowName name = NameOfFlow(2);
    spoil(name);
    *batch.mutable_definitions()->add_flows() = name;
  };
  define([](auto& n) { n.set_flow(0); });
  define([](auto& n) { n.set_flow(20'001); });
  define([](auto& n) { n.set_local("xyz"); });
  define([](auto& n) { n.set_remote(""); });
  define([](auto& n) { n.set_qpn(1 << 24); });
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  *batch.add_flows() = FlowOf(1);
  *batch.add_flows() = FlowOf(1, uint64_t{1} << 60);
  *batch.add_flows() = FlowOf(1);
  batch.mutable_flows(2)->set_delay("\xff\xff");
  batch.mutable_other_flows()->set_bytes(uint64_t{1} << 60);
  const auto job = [&](const std::function<void(pb::Job&)>& spoil) {
    pb::Job made = JobOf(0);
    spoil(made);
    *batch.add_jobs() = made;
  };
  job([](auto& j) { j.set_rank(8); });
  job([](auto& j) { j.set_rank(-1); });
  job([](auto& j) { j.clear_id(); });
  job([](auto& j) { j.set_bus_bytes_per_s(std::numeric_limits<double>::quiet_NaN()); });
  job([](auto& j) { j.set_note(std::string(5000, 'x')); });
  job([](auto& j) { j.set_label(std::string(1000, 'x')); });
  pb::Collective& c = *batch.add_collectives();
  c.set_job_id("aa");
  c.set_ranks(2);
  c.add_peers()->set_send_wait_ns(std::numeric_limits<double>::infinity());
  Send(batch);
  const LiveHost* live = ingest_->Find("a");
  EXPECT_EQ(live->records_left_out, 5u + 2 + 1 + 5 + 1);
  EXPECT_THAT(live->work->flows().flows, SizeIs(1));
  ASSERT_THAT(live->work->jobs(), SizeIs(1));
  EXPECT_EQ(live->work->jobs().begin()->second.job.label().size(), 512u) << "cut";
  EXPECT_THAT(live->work->collectives(), SizeIs(0));
}

TEST_F(IngestTest, AHostThatTellsOfTooMuchFillsNoMemory) {
  Connect();
  pb::Batch batch = Batch(1);
  for (uint32_t f = 1; f <= 1000; ++f) {
    *batch.mutable_definitions()->add_flows() = NameOfFlow(f);
    *batch.add_flows() = FlowOf(f);
  }
  for (int r = 0; r < 1000; ++r) {
    *batch.add_jobs() = JobOf(0);
    batch.mutable_jobs(r)->set_pid(static_cast<uint32_t>(r));
  }
  Send(batch);
  EXPECT_EQ(ingest_->Find("a")->work->flows().flows.size(), 512u);
  EXPECT_EQ(ingest_->Find("a")->work->jobs().size(), 512u);
  EXPECT_EQ(ingest_->Find("a")->records_left_out, 488u * 2);
  for (uint64_t s = 2; s < 10; ++s) {
    batch = Batch(s);
    for (int r = 0; r < 500; ++r) {
      *batch.add_jobs() = JobOf(1);
      batch.mutable_jobs(r)->set_pid(static_cast<uint32_t>(s * 1000) + static_cast<uint32_t>(r));
      pb::Collective& c = *batch.add_collectives();
      c.set_job_id("aa");
      c.set_ranks(2);
      c.set_seq(s * 1000 + static_cast<uint64_t>(r));
    }
    Send(batch);
  }
  EXPECT_EQ(ingest_->Find("a")->work->jobs().size(), LiveWork::kMostJobs);
  EXPECT_EQ(ingest_->Find("a")->work->collectives().size(), LiveWork::kMostCollectives);
}

// Answers name NICs, versions and types: a character at the cut would make them unreadable.
TEST_F(IngestTest, NamesEndWhereACharacterEnds) {
  const std::string kept(63, 'x'), told = kept + "\u00fc";
  pb::Hello hello = Hello();
  hello.set_version(told);
  ASSERT_TRUE(ingest_->Connect(hello, {.names = {"a"}}, kNow).ok());
  pb::Inventory inventory;
  pb::NicFacts& nic = *inventory.add_nics();
  nic.set_name(told);
  nic.add_addresses(V4(0x0a000001));
  pb::Batch batch = Batch(1);
  *batch.mutable_inventory() = inventory;
  pb::FleetEvent event = Event(1);
  event.mutable_event()->set_type(told);
  *batch.add_events() = event;
  EXPECT_EQ(Send(batch).through_sequence(), 1u);
  EXPECT_EQ(ingest_->Find("a")->version, kept);
  ASSERT_THAT(ingest_->Find("a")->nics, SizeIs(1));
  EXPECT_EQ(ingest_->Find("a")->nics[0].name, kept);
  ASSERT_THAT(store_->Events({})->events, SizeIs(1));
  EXPECT_EQ(store_->Events({})->events[0].type, kept);
}

TEST_F(IngestTest, TwiceIsOnceAndAMissingOneIsAskedFor) {
  Connect();
  Send(Batch(1));
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  const pb::Ack early = Send(Batch(3));
  EXPECT_TRUE(early.again());
  EXPECT_EQ(early.through_sequence(), 1u);
  EXPECT_EQ(Send(Batch(2)).through_sequence(), 2u);
  // What the spool dropped never comes, and is not waited for.
  pb::Batch after_gap = Batch(9);
  after_gap.set_after_sequence(2);
  EXPECT_EQ(Send(after_gap).through_sequence(), 9u);
  EXPECT_EQ(store_->Through("a", kRun).value(), 9u);
}

TEST_F(IngestTest, ASpoolOfAnEarlierRunIsHistoryNotThePresent) {
  Connect("a", kRun + 1);
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  EXPECT_THAT(ingest_->Find("a")->paths, SizeIs(0));
  EXPECT_EQ(store_->Hosts()->at(0).newest_ns, Batch(1).to_ns());
}

TEST_F(IngestTest, AfterARestartItGoesOnAndAsksForDefinitions) {
  Connect();
  Send(Batch(1));
  Restart();
  const pb::Welcome welcome = Connect();
  EXPECT_EQ(welcome.acknowledged_sequence(), 1u);
  EXPECT_TRUE(welcome.send_definitions());
  pb::Batch batch = Batch(2);
  *batch.add_events() = Event(1);
  const pb::Ack ack = Send(batch);
  EXPECT_TRUE(ack.send_definitions());
  EXPECT_EQ(ack.refusals_size(), 2);                   // its paths, of which nothing is known …
  EXPECT_THAT(store_->Events({})->events, SizeIs(1));  // … but the event is there
}

TEST_F(IngestTest, NoHostSpeaksForAnother) {
  EXPECT_TRUE(absl::IsPermissionDenied(ingest_->Connect(Hello("a"), {.names = {"b"}}, kNow).status()));
  Connect("b");
  const pb::Ack ack = Send(Batch(1, "a"), "b");
  ASSERT_EQ(ack.refusals_size(), 1);
  EXPECT_TRUE(absl::StrContains(ack.refusals(0).reason(), "may not speak"));
  EXPECT_TRUE(store_->Hosts()->empty());
}

TEST_F(IngestTest, NonsenseIsLeftOutWithAReasonAndTheRestTaken) {
  Connect();
  pb::Batch batch = Batch(1);
  batch.mutable_paths(0)->set_queue("\xff\xff\xff");
  batch.add_paths()->set_path(99);
  batch.mutable_definitions()->add_hop_lists()->set_id(5);  // not its name
  batch.mutable_definitions()->add_paths()->set_path(3);    // no address
  *batch.add_events() = Event(0);
  *batch.add_events() = Event(8);
  const pb::Ack ack = Send(batch);
  EXPECT_EQ(ack.through_sequence(), 1u);
  EXPECT_EQ(ack.refusals_size(), 5);
  EXPECT_THAT(ingest_->Find("a")->paths, SizeIs(1));
  EXPECT_THAT(store_->Events({})->events, SizeIs(1));
  EXPECT_EQ(ingest_->Find("a")->records_left_out, 5u);
}

TEST_F(IngestTest, MoreThanWasSentIsAbsurd) {
  Connect();
  pb::Batch batch = Batch(1);
  batch.mutable_paths(0)->set_lost(101);
  batch.mutable_paths(1)->set_sent_more(-50);  // 90 samples of 50
  EXPECT_EQ(Send(batch).refusals_size(), 2);
}

TEST_F(IngestTest, ABatchThatCannotBeIsRefusedForGoodAndTheNextGoesOn) {
  Connect();
  pb::Batch future = Batch(1);
  future.set_to_ns(absl::ToUnixNanos(kNow + absl::Hours(1)));
  const pb::Ack ack = Send(future);
  EXPECT_EQ(ack.through_sequence(), 1u);
  ASSERT_EQ(ack.refusals_size(), 1);
  EXPECT_TRUE(absl::StrContains(ack.refusals(0).reason(), "future"));
  pb::Batch large = Batch(2);
  large.mutable_inventory()->set_kernel(std::string(2 << 20, 'x'));
  EXPECT_EQ(Send(large).refusals_size(), 1);
  EXPECT_EQ(Send(Batch(3)).through_sequence(), 3u);
}

TEST_F(IngestTest, AnEventOfAnImpossibleTimeIsKeptAndItsBoundSaysSo) {
  Connect();
  pb::Batch batch = Batch(1);
  *batch.add_events() = Event(1);
  batch.mutable_events(0)->set_time_ns(INT64_MIN);
  Send(batch);
  const StoredEvent event = store_->Events({})->events.at(0);
  EXPECT_EQ(event.time_ns, batch.to_ns());
  EXPECT_GE(event.bound_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::Hours(48))));
}

TEST_F(IngestTest, AHostThatFloodsWaitsAlone) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 600};
  Restart();
  Connect();
  Connect("b");
  pb::Ack ack;
  uint64_t sequence = 0;
  while (ack.pause_s() == 0 && sequence < 50) ack = Send(Batch(++sequence));
  EXPECT_GT(ack.pause_s(), 0);
  EXPECT_EQ(ack.through_sequence(), sequence - 1);
  EXPECT_EQ(Send(Batch(1, "b"), "b").through_sequence(), 1u);
}

// Names are told once, so a record of a few bytes brings all of its flow's words.
TEST_F(IngestTest, FlowsCostWhatTheyTakeInMemory) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 200'000};
  Restart();
  Connect();
  pb::Batch batch = Batch(1);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  batch.mutable_definitions()->mutable_flows(0)->set_label(std::string(250, 'x'));
  EXPECT_EQ(Send(batch).pause_s(), 0);
  const auto flood = [](uint64_t sequence) {
    pb::Batch many = Batch(sequence);
    for (int f = 0; f < 500; ++f) *many.add_flows() = FlowOf(1);
    return many;
  };
  EXPECT_EQ(Send(flood(2)).pause_s(), 0);
  const pb::Ack ack = Send(flood(3));
  EXPECT_GT(ack.pause_s(), 0) << "on the wire both take " << 2 * flood(2).ByteSizeLong() << " bytes";
  EXPECT_EQ(ack.through_sequence(), 2u);
}

// What is packed is inflated only for who may say so much, and is charged for what it came to.
TEST_F(IngestTest, APackedBatchIsAdmittedAsItCameAndChargedForWhatIsInIt) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 4000};
  Restart();
  Connect();
  pb::Batch batch = Batch(1);
  for (uint32_t path = 0; path < 100; ++path) batch.add_paths()->set_path(path);
  pb::Batch packed = batch;
  packed.clear_paths();
  packed.set_calm_paths("a few bytes");
  EXPECT_FALSE(ingest_->Admit("a", packed, kNow).has_value());
  EXPECT_FALSE(ingest_->Enqueue("a", batch, kNow, packed.ByteSizeLong()).has_value());
  ingest_->Flush(kNow);
  EXPECT_EQ(ingest_->Admit("a", packed, kNow)->through_sequence(), 1u) << "it is known";

  const uint64_t left = 4000 - batch.ByteSizeLong();
  packed.set_sequence(2);
  packed.set_calm_paths(std::string(left, 'a'));
  const std::optional<pb::Ack> ack = ingest_->Admit("a", packed, kNow);
  ASSERT_TRUE(ack.has_value()) << "a packed one of " << left << " bytes beside what the first came to";
  EXPECT_GT(ack->pause_s(), 0);
  packed.set_host("b");
  packed.clear_calm_paths();
  EXPECT_EQ(ingest_->Admit("a", packed, kNow)->refusals_size(), 1) << "another host's";
  EXPECT_TRUE(ingest_->Admit("c", packed, kNow)->again()) << "it never said Hello";
}

TEST_F(IngestTest, TheQueueHoldsSoManyBytesOfAllHosts) {
  limits_.queued_bytes = 100'000;
  Restart();
  Connect();
  Connect("b");
  pb::Batch batch = Batch(1);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  for (int f = 0; f < 500; ++f) *batch.add_flows() = FlowOf(1);
  EXPECT_FALSE(ingest_->Enqueue("a", batch, kNow).has_value());
  const std::optional<pb::Ack> ack = ingest_->Enqueue("b", Batch(1, "b"), kNow);
  ASSERT_TRUE(ack.has_value());
  EXPECT_GT(ack->pause_s(), 0);
  ingest_->Flush(kNow);
  EXPECT_EQ(Send(Batch(1, "b"), "b").through_sequence(), 1u);
}

TEST_F(IngestTest, ReportsAreOfTheSameQuota) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 1000};
  Restart();
  Connect();
  Connect("b");
  EXPECT_TRUE(ingest_->TakesReport("a", 900, kNow));
  EXPECT_FALSE(ingest_->TakesReport("a", 200, kNow));
  EXPECT_FALSE(ingest_->TakesReport("a", 200, kNow + absl::Seconds(9)));
  EXPECT_EQ(ingest_->Find("a")->refused_reports, 2u);
  EXPECT_TRUE(ingest_->TakesReport("a", 200, kNow + absl::Seconds(10)));
  EXPECT_TRUE(ingest_->TakesReport("b", 1000, kNow)) << "it waits alone";
  EXPECT_FALSE(ingest_->TakesReport("c", 1, kNow)) << "it never said Hello";
}

TEST_F(IngestTest, MoreThanTheQueueHoldsWaitsAndIsTakenLater) {
  limits_.queued_batches = 2;
  Restart();
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  for (const uint64_t s : {3, 4}) {
    const std::optional<pb::Ack> ack = ingest_->Enqueue("a", Batch(s), kNow);
    ASSERT_TRUE(ack.has_value());
    EXPECT_TRUE(ack->again());
    EXPECT_EQ(ack->through_sequence(), 0u);  // nothing is in the store yet
  }
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
  EXPECT_EQ(Send(Batch(3)).through_sequence(), 3u);
}

TEST_F(IngestTest, WhatTheStoreDidNotTakeIsNotAcknowledgedAndComesAgain) {
  FailingStore failing(*store_);
  Ingest ingest(failing, "one", limits_);
  ASSERT_TRUE(ingest.Connect(Hello(), {.names = {"a"}}, kNow).ok());
  failing.fails = true;
  EXPECT_FALSE(ingest.Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest.Enqueue("a", Batch(2), kNow).has_value());
  const auto failed = ingest.Flush(kNow);
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_TRUE(failed[0].second.again());
  EXPECT_EQ(failed[0].second.through_sequence(), 0u);
  EXPECT_GT(failed[0].second.pause_s(), 0);
  EXPECT_TRUE(ingest.Enqueue("a", Batch(3), kNow)->again());  // it was under way already
  failing.fails = false;
  EXPECT_FALSE(ingest.Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest.Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(ingest.Flush(kNow).at(0).second.through_sequence(), 2u);
}

// The store is at work without the streams' lock: what comes meanwhile is queued, and shares its fate.
TEST_F(IngestTest, WhatComesWhileTheStoreIsAtWorkIsForgottenWithItWhereThatFails) {
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  const std::vector<Ingest::Queued> taken = ingest_->Take();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  const auto failed = ingest_->Settle(taken, /*stored=*/false, kNow);
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_TRUE(failed[0].second.again());
  EXPECT_THAT(ingest_->Take(), IsEmpty()) << "the second, without the first, would look as if all were there";
  EXPECT_EQ(store_->Through("a", kRun).value(), 0u);
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  EXPECT_EQ(Send(Batch(2)).through_sequence(), 2u);
}

TEST_F(IngestTest, WhatComesWhileTheStoreIsAtWorkIsTakenNext) {
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  const std::vector<Ingest::Queued> taken = ingest_->Take();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(ingest_->Enqueue("a", Batch(1), kNow)->through_sequence(), 0u) << "it comes again, and is on its way";
  ASSERT_TRUE(ingest_->Put(taken).ok());
  EXPECT_EQ(ingest_->Settle(taken, /*stored=*/true, kNow).at(0).second.through_sequence(), 1u);
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
}

// What is acknowledged leaves the host's spool.
TEST_F(IngestTest, AWelcomeAcknowledgesNothingThatIsOnlyQueued) {
  EXPECT_EQ(Connect().acknowledged_sequence(), 0u);
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(Connect().acknowledged_sequence(), 1u);
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
  EXPECT_EQ(Connect().acknowledged_sequence(), 2u);
}

TEST_F(IngestTest, MetricsAreWhereTheHostIsAndNowhereElse) {
  const Speaker who{.names = {"a", "a.site"}, .addresses = {"10.0.0.9"}, .from = "10.0.0.5"};
  for (const auto& [told, taken] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                    {":9477", "10.0.0.5:9477"},
                                                                                    {"10.0.0.5:1", "10.0.0.5:1"},
                                                                                    {"10.0.0.9:1", "10.0.0.9:1"},
                                                                                    {"a.site:65535", "a.site:65535"}}) {
    const absl::StatusOr<std::string> address = CheckMetricsAddress(told, who);
    ASSERT_TRUE(address.ok()) << told << ": " << address.status();
    EXPECT_EQ(*address, taken);
  }
  EXPECT_EQ(*CheckMetricsAddress(":1", {.from = "fd00::1"}), "[fd00::1]:1");
  EXPECT_EQ(*CheckMetricsAddress("[fd00::1]:1", {.from = "fd00::1"}), "[fd00::1]:1");
  for (const char* not_its : {"10.0.0.6:9477", "b:9477", "[::1]:9477"})
    EXPECT_TRUE(absl::IsPermissionDenied(CheckMetricsAddress(not_its, who).status())) << not_its;
  for (const char* none : {"a", "a:", "a:0", "a:65536", "a b:1", "a/metrics:1", "a\n:1"})
    EXPECT_FALSE(CheckMetricsAddress(none, who).ok()) << none;
  EXPECT_FALSE(CheckMetricsAddress(":9477", {.names = {"a"}}).ok()) << "where it comes from is not known";
}

TEST_F(IngestTest, KnowsWhereMetricsAreAfterARestart) {
  pb::Hello hello = Hello();
  hello.set_metrics_address(":9477");
  ASSERT_TRUE(ingest_->Connect(hello, {.names = {"a"}, .from = "10.0.0.5"}, kNow).ok());
  Connect("b");
  hello.set_metrics_address("10.0.0.6:9477");
  hello.set_host("c");
  ASSERT_TRUE(ingest_->Connect(hello, {.names = {"c"}, .from = "10.0.0.5"}, kNow).ok()) << "only its metrics are not";
  EXPECT_TRUE(absl::StrContains(ingest_->Find("c")->metrics_fault, "10.0.0.6"));
  ingest_->Flush(kNow);
  Restart();
  EXPECT_EQ(ingest_->facts().at("a").metrics, "10.0.0.5:9477");
  EXPECT_EQ(ingest_->facts().at("b").metrics, "");
  EXPECT_EQ(ingest_->facts().at("c").metrics, "");
  EXPECT_FALSE(ingest_->has_work());
}

TEST_F(IngestTest, AHostThatIsRemovedIsForgottenUntilItSpeaksAgain) {
  EXPECT_TRUE(absl::IsNotFound(ingest_->Remove("a", false, kNow)));
  Connect();
  Send(Batch(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(ingest_->Remove("a", false, kNow)));
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  ASSERT_TRUE(ingest_->Remove("a", true, kNow).ok());
  EXPECT_TRUE(ingest_->Flush(kNow).empty()) << "what was queued is stored, and nobody is told";
  EXPECT_EQ(ingest_->Find("a"), nullptr);
  EXPECT_EQ(*store_->Through("a", kRun), 2u) << "history stays";
  Restart();
  EXPECT_EQ(ingest_->facts().at("a").removed_ns, absl::ToUnixNanos(kNow));
  EXPECT_TRUE(absl::IsNotFound(ingest_->Remove("a", false, kNow))) << "it is gone already";
  Connect();
  ingest_->Disconnect("a", kRun);
  EXPECT_EQ(ingest_->facts().at("a").removed_ns, 0);
  EXPECT_TRUE(ingest_->Remove("a", false, kNow).ok());
}

}  // namespace
}  // namespace cw::fleet
