// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/ingest.h"

#include <filesystem>
#include <functional>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_ingest_fixture.h"
#include "userspace/fleet/ingest/host_name.h"

namespace cw::fleet {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(HostName, ACertificateSpeaksForItsOwnNamesOnly) {
  EXPECT_TRUE(MaySpeakFor({"node1.rack2", "node1"}, "node1").ok());
  for (const char* other : {"node2", "node11", "node1.rack2", "Node1", "", "no de", "../x", "a..b"}) {
    EXPECT_FALSE(MaySpeakFor({"node1", "*.rack2", "*"}, other).ok()) << other;
  }
  EXPECT_TRUE(absl::StrContains(MaySpeakFor({"node1"}, "node2").message(), "for node1, not for node2"));
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

// Ports of queue pairs that are gone were listed as "new" for as long as the agent ran.
TEST_F(IngestTest, APathThatTheAgentHasNoMoreIsForgotten) {
  Connect();
  for (uint64_t sequence = 1; sequence <= 64; ++sequence) {
    pb::Batch batch = Batch(sequence);
    if (sequence > 1) batch.mutable_paths()->RemoveLast();
    batch.set_from_ns(absl::ToUnixNanos(kNow - absl::Seconds(10 * (66 - sequence))));
    batch.set_to_ns(batch.from_ns() + absl::ToInt64Nanoseconds(absl::Seconds(10)));
    Send(batch);
    const size_t known = ingest_->Find("a")->paths.size();
    ASSERT_TRUE(sequence >= 30 || known == 2) << sequence;
  }
  ASSERT_THAT(ingest_->Find("a")->paths, SizeIs(1));
  EXPECT_EQ(ingest_->Find("a")->paths.begin()->first.remote.ToString(), "10.0.1.1");
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
  EXPECT_THAT(ingest_->Find("a")->last_refusal, ::testing::HasSubstr("never defined"));
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

// An agent whose batch comes again and again, because the store fails, defines its paths once.
TEST_F(IngestTest, WhatIsDefinedAgainCountsOnce) {
  limits_.batch.definitions = 4;
  Restart();
  Connect();
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    pb::Batch batch = Batch(1);
    batch.set_sequence(sequence);
    EXPECT_EQ(Send(batch).refusals_size(), 0) << sequence;
  }
}

// The clock of a host that is ahead by an hour: its events are kept, and what it measured is not.
TEST_F(IngestTest, EventsOfTheFutureArePutAtPresent) {
  Connect();
  for (const int64_t ahead_ns : {absl::ToInt64Nanoseconds(absl::Hours(1)), INT64_MAX - absl::ToUnixNanos(kNow)}) {
    pb::Batch batch = Batch(ahead_ns == INT64_MAX - absl::ToUnixNanos(kNow) ? 2 : 1);
    batch.set_to_ns(absl::ToUnixNanos(kNow) + ahead_ns);
    *batch.add_events() = Event(batch.sequence());
    batch.mutable_events(0)->set_time_ns(batch.to_ns());
    const pb::Ack ack = Send(batch);
    ASSERT_EQ(ack.refusals_size(), 1);
    EXPECT_TRUE(absl::StrContains(ack.refusals(0).reason(), "future"));
    const StoredEvent event = store_->Events({})->events.at(batch.sequence() - 1);
    EXPECT_LE(event.time_ns, absl::ToUnixNanos(kNow + absl::Minutes(10)));
    EXPECT_GE(event.bound_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::Hours(1))));
    EXPECT_THAT(ingest_->Find("a")->paths, IsEmpty());
  }
}

// A host that began with its clock at 1970 tells of now; retention would drop the year at once.
TEST_F(IngestTest, EventsOfAClockThatIsNotSetArePutAtPresent) {
  Connect();
  pb::Batch batch = Batch(1);
  batch.set_from_ns(1'000'000'000);
  batch.set_to_ns(11'000'000'000);
  *batch.add_events() = Event(1);
  batch.mutable_events(0)->set_time_ns(5'000'000'000);
  Send(batch);
  const StoredEvent event = store_->Events({})->events.at(0);
  EXPECT_EQ(event.time_ns, absl::ToUnixNanos(kNow));
  EXPECT_GE(event.bound_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(absl::Hours(24 * 90))));
}

TEST_F(IngestTest, ALongEventIsCutAndKept) {
  Connect();
  pb::Batch batch = Batch(1);
  *batch.add_events() = Event(1);
  batch.mutable_events(0)->mutable_event()->set_text("it broke");
  for (int i = 0; i < 5000; ++i) {
    pb::Evidence& evidence = *batch.mutable_events(0)->mutable_event()->add_evidence();
    evidence.set_name(absl::StrCat("number ", i));
    evidence.set_value("7");
  }
  EXPECT_EQ(Send(batch).refusals_size(), 1);
  pb::FleetEvent kept;
  const std::string payload = store_->Events({})->events.at(0).payload;
  EXPECT_LE(payload.size(), limits_.batch.text_bytes);
  ASSERT_TRUE(kept.ParseFromString(payload));
  EXPECT_EQ(kept.event().text(), "it broke");
  ASSERT_GT(kept.event().evidence_size(), 100);
  EXPECT_EQ(kept.event().evidence(0).name(), "number 0");
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

class IngestRemovalTest : public IngestTest {
 protected:
  absl::Status Remove(bool force) {
    const absl::StatusOr<HostFacts> gone = ingest_->MayRemove("a", force, kNow);
    if (!gone.ok()) return gone.status();
    if (absl::Status kept = ingest_->KeepRemoved(*gone); !kept.ok()) return kept;
    return ingest_->Remove(*gone, force);
  }
};

TEST_F(IngestRemovalTest, AHostThatIsRemovedIsForgottenUntilItSpeaksAgain) {
  EXPECT_TRUE(absl::IsNotFound(Remove(false)));
  Connect();
  Send(Batch(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove(false)));
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  ASSERT_TRUE(Remove(true).ok());
  EXPECT_TRUE(ingest_->Flush(kNow).empty()) << "what was queued is stored, and nobody is told";
  EXPECT_EQ(ingest_->Find("a"), nullptr);
  EXPECT_EQ(*store_->Through("a", kRun), 2u) << "history stays";
  Restart();
  EXPECT_EQ(ingest_->facts().at("a").removed_ns, absl::ToUnixNanos(kNow));
  EXPECT_TRUE(absl::IsNotFound(Remove(false))) << "it is gone already";
  Connect();
  ingest_->Disconnect("a", kRun);
  EXPECT_EQ(ingest_->facts().at("a").removed_ns, 0);
  EXPECT_TRUE(Remove(false).ok());
}

TEST_F(IngestRemovalTest, AHostThatConnectsMeanwhileIsThere) {
  Connect();
  ingest_->Disconnect("a", kRun);
  const absl::StatusOr<HostFacts> gone = ingest_->MayRemove("a", false, kNow);
  ASSERT_TRUE(gone.ok()) << gone.status();
  Connect();
  ASSERT_TRUE(ingest_->KeepRemoved(*gone).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ingest_->Remove(*gone, false)));
  ingest_->Flush(kNow);
  Restart();
  EXPECT_EQ(ingest_->facts().at("a").removed_ns, 0) << "the store has learnt it, too";
}

}  // namespace
}  // namespace cw::fleet
