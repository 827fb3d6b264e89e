// SPDX-License-Identifier: Apache-2.0
// Incidents from a fabric of two leaves and two spines, whose hosts' seconds are made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/incidents/bundle.h"
#include "userspace/fleet/incidents/collection.h"
#include "userspace/fleet/incidents/gather.h"
#include "userspace/fleet/incidents/replay.h"
#include "userspace/fleet/incidents/shelf.h"
#include "userspace/fleet/incidents/view.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/addr_bytes.h"
#include "userspace/model/hops_id.h"
#include "userspace/model/packed_sketch.h"

namespace cw::fleet {
namespace {

namespace fs = std::filesystem;
namespace pb = cwfabric::v1;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 1'800'000'000 * kSecond;
constexpr int kHosts = 4, kSpines = 3, kSpan = 60, kCut = 30;  // hosts 0 and 1 at leaf 0, 2 and 3 at leaf 1
constexpr int kDeadSpine = 1;

Addr AddrOf(const std::string& text) { return *Addr::Parse(text); }
std::string NameOf(int host) { return absl::StrCat("h", host); }
Addr NicOf(int host) { return AddrOf(absl::StrCat("10.0.0.", host + 1)); }

// Each spine carries one path to each host of the other leaf. A cut spine: its probes are sent and not answered.
pb::RingSecond SecondOf(int host, int second, bool cut) {
  pb::RingSecond out;
  out.set_run(static_cast<uint64_t>(100 + host));
  out.set_from_ns(kBegin + second * kSecond);
  out.set_to_ns(kBegin + (second + 1) * kSecond);
  out.set_bound_ns(1000);
  const int leaf = host / 2;
  uint32_t number = 0;
  for (int other = 0; other < kHosts; ++other) {
    if (other / 2 == leaf) continue;
    for (int spine = 0; spine < kSpines; ++spine) {
      ++number;
      if (second == 0) {
        pb::RingName& name = *out.add_names();
        name.set_path(number);
        name.set_local(AddressBytes(NicOf(host)));
        name.set_remote(AddressBytes(NicOf(other)));
        name.set_peer(NameOf(other));
        name.set_udp_port(50'000u + number);
        name.set_hops_known(true);
        for (const std::string& hop :
             {absl::StrCat("10.1.", leaf, ".", 100 + host), absl::StrCat("10.2.", spine, ".", leaf),
              absl::StrCat("10.1.", other / 2, ".", spine)})
          name.add_hops(AddressBytes(AddrOf(hop)));
      }
      const bool dead = cut && spine == kDeadSpine && second >= kCut;
      pb::RingPath& path = *out.add_paths();
      path.set_path(number);
      if (dead) path.set_state(pb::PATH_STATE_DEAD);
      path.set_base_ns(4000);
      path.set_sent(20);
      if (dead) continue;
      // One is under way when the second ends, and is answered in the next.
      path.set_answered(second == 0 ? 19 : 20);
      PackedSketch queue;
      queue.Add(2000, 20);
      path.set_queue(queue.Pack());
      for (int i = 0; i < 20; ++i) {
        path.add_after_us(50'000);
        path.add_delay_ns(i == 0 ? 6000 : 0);
      }
    }
  }
  return out;
}

// Each spine has a port to either leaf, which answers traces; only this file knows that both are of one switch.
FleetFile Fabric() {
  std::string text;
  for (int spine = 0; spine < kSpines; ++spine)
    absl::StrAppend(&text, "[[switch]]\nname = \"spine", spine, "\"\naddresses = [\"10.2.", spine, ".0\", \"10.2.",
                    spine, ".1\"]\n");
  return ReadFleetFile(text, "fabric").value();
}

class IncidentsTest : public ::testing::Test {
 protected:
  IncidentsTest() {
    std::string name = (fs::temp_directory_path() / "cw_incidents_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~IncidentsTest() override { fs::remove_all(folder_); }

  static pb::Incident Head(const std::string& id, int hosts = kHosts) {
    pb::Incident head;
    head.set_id(id);
    head.set_reason("a test");
    head.set_taken_ns(kBegin + kSpan * kSecond);
    head.set_from_ns(kBegin);
    head.set_to_ns(kBegin + kSpan * kSecond);
    head.set_pivot_ns(kBegin + kCut * kSecond);
    for (int host = 0; host < hosts; ++host) {
      pb::IncidentHost& out = *head.add_hosts();
      out.set_host(NameOf(host));
      pb::NicFacts& nic = *out.add_nics();
      nic.set_name("eth0");
      nic.add_addresses(AddressBytes(NicOf(host)));
    }
    return head;
  }
  std::string PathOf(const std::string& id) const { return folder_ + "/" + id + ".incident"; }
  // A file of all hosts, as a service makes it.
  std::string Write(bool cut) {
    auto writer = BundleWriter::Create(PathOf(kId)).value();
    for (int host = 0; host < kHosts; ++host) {
      for (int second = 0; second < kSpan; ++second) {
        pb::IncidentRecord record;
        record.mutable_seconds()->set_host(NameOf(host));
        record.mutable_seconds()->add_seconds(SecondOf(host, second, cut).SerializeAsString());
        EXPECT_TRUE(writer->Add(record).ok());
      }
    }
    pb::Incident head = Head(kId);
    for (pb::IncidentHost& host : *head.mutable_hosts()) host.set_source("ring");
    EXPECT_TRUE(writer->Finish(std::move(head)).ok());
    return PathOf(kId);
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static pb::RingAnswer Chunk(uint64_t id, uint32_t number, const std::vector<pb::RingSecond>& seconds) {
    pb::RingAnswer answer;
    answer.set_id(id);
    answer.mutable_chunk()->set_number(number);
    for (const pb::RingSecond& second : seconds) answer.mutable_chunk()->add_seconds(second.SerializeAsString());
    return answer;
  }
  static pb::RingAnswer End(uint64_t id, const std::string& reason) {
    pb::RingAnswer answer;
    answer.set_id(id);
    answer.mutable_end()->set_reason(reason);
    return answer;
  }

  static constexpr char kId[] = "00000000000000aa";
  std::string folder_;
};

TEST_F(IncidentsTest, AReplayFindsWhatHappenedAndNothingElse) {
  const absl::StatusOr<Bundle> bundle = LoadBundle(Write(/*cut=*/true));
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  const pb::IncidentReplay replay = Replay(*bundle, Fabric(), {});
  ASSERT_THAT(replay.findings(), SizeIs(1)) << replay.DebugString();
  EXPECT_EQ(replay.findings(0).cause(), "switch dead") << replay.DebugString();
  EXPECT_THAT(replay.findings(0).hosts(), SizeIs(kHosts));
  EXPECT_GE(replay.findings(0).start_ns(), kBegin + kCut * kSecond);
  EXPECT_LE(replay.findings(0).start_ns(), kBegin + (kCut + 2) * kSecond);
  EXPECT_THAT(replay.notes(), IsEmpty());

  // Between two leaves each of its paths crosses both of its cables.
  EXPECT_THAT(replay.findings(0).one_of(), testing::Contains("switch spine1"));

  // Rules that were changed change it.
  FindingRules later;
  later.settle = absl::Seconds(2 * kSpan);
  EXPECT_THAT(Replay(*bundle, Fabric(), later).findings(), IsEmpty()) << "it is still hearing all hosts";
  const absl::StatusOr<Bundle> well = LoadBundle(Write(/*cut=*/false));
  ASSERT_TRUE(well.ok());
  EXPECT_THAT(Replay(*well, Fabric(), {}).findings(), IsEmpty()) << "nothing was wrong";
}

TEST_F(IncidentsTest, TheViewTellsBeforeFromAfter) {
  const absl::StatusOr<Bundle> bundle = LoadBundle(Write(/*cut=*/true));
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  const pb::IncidentView view = ViewOf(*bundle);
  EXPECT_THAT(view.paths(), SizeIs(kHosts * 2 * kSpines));
  EXPECT_THAT(view.delays(), SizeIs(kSpan));
  EXPECT_EQ(view.delays(0).up(), 24u);
  EXPECT_EQ(view.delays(kCut).not_up(), 8u);
  const pb::IncidentPath& worst = view.paths(0);
  EXPECT_EQ(worst.before(), pb::PATH_STATE_UP);
  EXPECT_EQ(worst.worst(), pb::PATH_STATE_DEAD);
  EXPECT_EQ(worst.samples_before(), 20u * kCut);
  EXPECT_EQ(worst.samples_after(), 0u);
  EXPECT_EQ(worst.lost_after(), 20u * (kSpan - kCut));
  EXPECT_EQ(view.paths(kHosts * 2 * kSpines - 1).worst(), pb::PATH_STATE_UP);
  ASSERT_THAT(view.steps(), SizeIs(kHosts));
  EXPECT_EQ(view.steps(0).time_ns(), kBegin + kCut * kSecond);
  EXPECT_EQ(view.steps(0).words(), "2 paths to h2, h3: up, then dead");
}

TEST_F(IncidentsTest, AnyWrongByteOrCutIsToldAndTheRestIsRead) {
  const std::string whole = Bytes(Write(/*cut=*/true));
  ASSERT_FALSE(ReadBundle(whole)->cut_off);
  ASSERT_EQ(ReadBundle(whole)->damaged_bytes, 0u);
  for (size_t at = 0; at < whole.size(); at += 997) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x20);
    const absl::StatusOr<Bundle> read = ReadBundle(wrong);
    if (read.ok()) {
      EXPECT_TRUE(read->damaged_bytes > 0 || read->cut_off) << at;
    }
    const absl::StatusOr<Bundle> cut = ReadBundle(absl::string_view(whole).substr(0, at));
    if (cut.ok()) {
      EXPECT_TRUE(cut->cut_off) << at;
      ViewOf(*cut);
    }
  }
  EXPECT_THAT(std::string(ReadBundle("CWINCID2...").status().message()), HasSubstr("another release"));
  EXPECT_THAT(std::string(ReadBundle("hello").status().message()), HasSubstr("no incident"));
}

// A file that somebody made: a replay of four megabytes had no end, and eight took 500 MB.
TEST_F(IncidentsTest, AFileOfMorePathsThanThereAreHasAnEnd) {
  constexpr uint32_t kPaths = 20'000;
  pb::IncidentSeconds seconds;
  seconds.set_host("h0");
  for (int second = 0; second < 3000; second += 10) {
    pb::RingSecond one;
    one.set_run(1);
    one.set_from_ns(kBegin + second * kSecond);
    one.set_to_ns(kBegin + (second + 1) * kSecond);
    for (uint32_t path = 0; second == 0 && path < kPaths; ++path) {
      pb::RingName& name = *one.add_names();
      name.set_path(path);
      name.set_local(AddressBytes(NicOf(0)));
      name.set_remote(AddressBytes(Addr::FromV4(0x0b000000 + path)));
      name.set_hops_known(true);
      name.add_hops(AddressBytes(Addr::FromV4(0x0c000000 + path)));
    }
    for (uint32_t path = 0; second == 0 && path < kPaths; ++path) {
      one.add_paths()->set_path(path);
      one.mutable_paths()->rbegin()->set_sent(20);
    }
    seconds.add_seconds(one.SerializeAsString());
  }
  Bundle bundle;
  bundle.head = Head(kId, 1);
  for (const std::string& bytes : seconds.seconds()) bundle.seconds["h0"].emplace_back().ParseFromString(bytes);
  const pb::IncidentReplay replay = Replay(bundle, FleetFile{}, FindingRules{}, 2'000'000);
  EXPECT_THAT(replay.notes(), ::testing::Contains(HasSubstr("more paths and seconds than are replayed")));
  EXPECT_EQ(ViewOf(bundle).paths_size(), static_cast<int>(kPaths));
}

TEST_F(IncidentsTest, EmptyMessagesThatTakeMuchMemoryAreDamage) {
  pb::RingSecond one = SecondOf(0, 0, false);
  const std::string good = one.SerializeAsString();
  for (int i = 0; i < 10'000; ++i) one.add_paths();
  pb::IncidentRecord record;
  record.mutable_seconds()->set_host("h0");
  record.mutable_seconds()->add_seconds(good);
  record.mutable_seconds()->add_seconds(one.SerializeAsString());
  {
    auto writer = BundleWriter::Create(PathOf(kId)).value();
    ASSERT_TRUE(writer->Add(record).ok());
    ASSERT_TRUE(writer->Finish(Head(kId, 1)).ok());
  }
  const auto bundle = LoadBundle(PathOf(kId));
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(bundle->seconds.at("h0"), SizeIs(1));
  EXPECT_GE(bundle->damaged_bytes, 20'000u);
}

TEST_F(IncidentsTest, HostsAreAskedAndTheirAnswersKept) {
  auto collection = Collection::Begin(Head(kId), PathOf(kId), {}).value();
  const auto ask = collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = ""});
  ASSERT_TRUE(ask.has_value());
  const uint64_t request = ask->request().id();
  EXPECT_EQ(ask->request().from_ns(), kBegin);
  EXPECT_FALSE(collection->Look("h1", {.connected = true, .keeps_ring = false, .no_ring = ""}).has_value());
  EXPECT_FALSE(collection->Look("h2", {.connected = true, .keeps_ring = false, .no_ring = "the disk is full"}));
  for (uint32_t number = 1; number <= 3; ++number) {
    const auto credit =
        collection->Take("h0", Chunk(request, number, {SecondOf(0, static_cast<int>(number) - 1, true)}));
    ASSERT_TRUE(credit.has_value());
    EXPECT_EQ(credit->credit().chunks(), number);
  }
  EXPECT_FALSE(collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = ""})) << "it is asked already";
  // It was connected anew: all of it comes again, and stands in the file once.
  EXPECT_TRUE(collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = "", .connection = 1}));
  EXPECT_FALSE(collection->Look("h0", {.connected = false})) << "that was the one before";
  EXPECT_THAT(collection->Waiting(), SizeIs(1));
  EXPECT_TRUE(collection->Take("h0", Chunk(request, 1, {SecondOf(0, 0, true)}))->has_credit());
  EXPECT_EQ(collection->Take("h0", End(request, ""))->forget(), request);
  EXPECT_FALSE(collection->Done(absl::FromUnixNanos(kBegin + (kSpan + 60) * kSecond))) << "h3 may come back";
  EXPECT_TRUE(collection->Done(absl::FromUnixNanos(kBegin + (kSpan + 180) * kSecond)));
  EXPECT_THAT(collection->WithoutRing(), SizeIs(3));
  ASSERT_TRUE(collection->Finish().ok());
  EXPECT_EQ(collection->refused(), 0u);

  const absl::StatusOr<Bundle> bundle = LoadBundle(PathOf(kId));
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(bundle->seconds.at("h0"), SizeIs(3));
  EXPECT_EQ(bundle->head.hosts(0).missing(), "");
  EXPECT_THAT(bundle->head.hosts(1).missing(), HasSubstr("too old to keep a ring"));
  EXPECT_THAT(bundle->head.hosts(2).missing(), HasSubstr("the disk is full"));
  EXPECT_EQ(bundle->head.hosts(3).missing(), "it was not connected");
  collection.reset();
  EXPECT_FALSE(fs::exists(PathOf(kId) + ".part"));
}

TEST_F(IncidentsTest, WhatWasNotAskedForIsRefusedAndCounted) {
  pb::RingSecond other_time = SecondOf(0, 0, true);
  other_time.set_from_ns(kBegin - 3600 * kSecond);
  other_time.set_to_ns(kBegin - 3599 * kSecond);
  pb::RingSecond large = SecondOf(0, 0, true);
  large.add_events()->set_text(std::string(Collection::kMostChunkBytes, 'x'));
  pb::RingAnswer nonsense = Chunk(0, 1, {});
  nonsense.mutable_chunk()->add_seconds("\xff\xff\xff");
  const std::vector<std::pair<pb::RingAnswer, const char*>> wrong = {
      {Chunk(0, 2, {SecondOf(0, 0, true)}), "out of order"},
      {Chunk(0, 1, {other_time}), "another time"},
      {Chunk(0, 1, {large}), "too large"},
      {nonsense, "no second"}};
  for (auto [answer, says] : wrong) {
    auto collection = Collection::Begin(Head(kId, 1), PathOf(kId), {}).value();
    const uint64_t request =
        collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = ""})->request().id();
    EXPECT_FALSE(collection->Take("h9", Chunk(request, 1, {SecondOf(0, 0, true)})).has_value()) << "not asked";
    EXPECT_FALSE(collection->Take("h0", Chunk(request + 1, 1, {SecondOf(0, 0, true)})).has_value()) << "not that";
    answer.set_id(request);
    EXPECT_EQ(collection->Take("h0", answer)->forget(), request);
    EXPECT_FALSE(collection->Take("h0", Chunk(request, 1, {SecondOf(0, 0, true)})).has_value()) << "it is over";
    EXPECT_EQ(collection->refused(), 4u);
    const absl::StatusOr<pb::Incident> head = collection->Finish();
    ASSERT_TRUE(head.ok());
    EXPECT_THAT(head->hosts(0).missing(), HasSubstr(says));
  }
  // More bytes than it was asked for.
  auto collection = Collection::Begin(Head(kId, 1), PathOf(kId), {.host_bytes = 4000}).value();
  const uint64_t request =
      collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = ""})->request().id();
  for (uint32_t number = 1; number < 100; ++number) {
    const auto answer = collection->Take("h0", Chunk(request, number, {SecondOf(0, 1, true)}));
    if (answer->has_credit()) continue;
    EXPECT_GT(number, 1u);
    break;
  }
  EXPECT_THAT(collection->Finish()->hosts(0).missing(), HasSubstr("more than was asked for"));
}

TEST_F(IncidentsTest, AHostThatBeginsAnewAndAnewLeavesRoomForOthers) {
  auto collection = Collection::Begin(Head(kId, 2), PathOf(kId), {.host_bytes = 4000}).value();
  uint64_t connection = 1, taken = 0;
  for (; connection < 100; ++connection) {
    const auto ask =
        collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = "", .connection = connection});
    if (!ask) break;
    if (collection->Take("h0", Chunk(ask->request().id(), 1, {SecondOf(0, 1, true)}))->has_credit()) ++taken;
  }
  EXPECT_LT(connection, 50u);
  EXPECT_GT(taken, 2u);
  EXPECT_THAT(collection->MissingOf("h0"), HasSubstr("began anew too often"));
  EXPECT_TRUE(collection->Look("h1", {.connected = true, .keeps_ring = true, .no_ring = ""}).has_value());
  EXPECT_THAT(collection->Waiting(), SizeIs(1));
}

TEST_F(IncidentsTest, AllPartsFitIntoTheFile) {
  auto collection = Collection::Begin(Head(kId), PathOf(kId), {.host_bytes = 4000, .bytes = 8000}).value();
  const auto ask = collection->Look("h0", {.connected = true, .keeps_ring = true, .no_ring = ""});
  EXPECT_EQ(ask->request().most_bytes(), 8000u / kHosts);
}

TEST_F(IncidentsTest, OfManyPathsTheStoreComesInSeveralRecords) {
  auto store = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  constexpr int kPaths = 9000, kTimes = 3;
  HostBatch batch{.host = "h0", .run = 1, .sequence = 1};
  for (int time = 0; time < kTimes; ++time) {
    for (int path = 0; path < kPaths; ++path) {
      PathSample sample{.key = {NicOf(0), NicOf(2), static_cast<uint16_t>(40'000 + path), false}};
      sample.time_ns = kBegin + time * 10 * kSecond;
      sample.state = PathState::kUp;
      for (int64_t delay = 1; delay <= 40; ++delay) sample.queue.Add(delay * delay * 1000, 3);
      sample.sent = 100;
      batch.paths.push_back(sample);
    }
  }
  ASSERT_TRUE(store->Append({&batch, 1}).ok());
  const auto seconds = SecondsFromStore(*store, "h0", kBegin, kBegin + 100 * kSecond);
  ASSERT_TRUE(seconds.ok());
  EXPECT_GT(seconds->size(), size_t{kTimes}) << "one does not fit into a record";
  auto collection = Collection::Begin(Head(kId, 1), PathOf(kId), {}).value();
  ASSERT_TRUE(collection->AddSeconds("h0", *seconds).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(collection->AddSeconds("h0", {std::string(kMostBundleRecord, 'x')})));
  collection->Lacks("h0", "the disk is full");
  ASSERT_TRUE(collection->Finish().ok());
  const absl::StatusOr<Bundle> bundle = LoadBundle(PathOf(kId));
  ASSERT_TRUE(bundle.ok());
  EXPECT_THAT(bundle->head.hosts(0).missing(), HasSubstr("the disk is full"));
  int samples = 0;
  for (const pb::RingSecond& second : bundle->seconds.at("h0")) samples += second.paths_size();
  EXPECT_EQ(samples, kPaths * kTimes);
}

TEST_F(IncidentsTest, EventsOfRingsAndOfTheStoreAreOneEach) {
  auto collection = Collection::Begin(Head(kId, 1), PathOf(kId), {}).value();
  pb::RingSecond second = SecondOf(0, 5, false);
  for (int seq = 1; seq <= 2; ++seq) {
    pb::Event& event = *second.add_events();
    event.set_seq(static_cast<uint64_t>(seq));
    event.set_type("path");
    event.set_time_unix_ns(kBegin + 5 * kSecond + seq);
  }
  ASSERT_TRUE(collection->AddSeconds("h0", {second.SerializeAsString()}).ok());
  pb::FleetEventOf stored;
  stored.set_host("h0");
  stored.mutable_event()->set_time_ns(kBegin + 5 * kSecond + 2);
  *stored.mutable_event()->mutable_event() = second.events(1);
  ASSERT_TRUE(collection->AddEvents({stored}).ok());
  ASSERT_TRUE(collection->Finish().ok());
  const absl::StatusOr<Bundle> bundle = LoadBundle(PathOf(kId));
  ASSERT_TRUE(bundle.ok());
  ASSERT_THAT(bundle->events, SizeIs(2));
  EXPECT_EQ(bundle->events[0].event().event().seq(), 1u);
  EXPECT_EQ(bundle->events[1].event().event().seq(), 2u);
}

TEST_F(IncidentsTest, TheShelfKeepsTheNewestAndSaysWhatGoes) {
  std::vector<std::string> told;
  const auto open = [&](size_t most) {
    return Shelf::Open(folder_, {.bytes = 1 << 30, .incidents = most},
                       [&](const std::string& text) { told.push_back(text); })
        .value();
  };
  std::ofstream(folder_ + "/00000000000000ff.incident.part") << "left by a service that was killed";
  std::ofstream(folder_ + "/00000000000000fe.incident") << "rubbish";
  auto shelf = open(3);
  EXPECT_FALSE(fs::exists(folder_ + "/00000000000000ff.incident.part"));
  EXPECT_THAT(told, SizeIs(1)) << "the rubbish";
  for (int i = 1; i <= 5; ++i) {
    const std::string id = absl::StrCat("000000000000000", i);
    auto writer = BundleWriter::Create(shelf->PathOf(id)).value();
    pb::Incident head = Head(id, 1);
    head.set_taken_ns(kBegin + i);
    ASSERT_TRUE(writer->Finish(head).ok());
    shelf->Put(head);
  }
  EXPECT_THAT(shelf->List(), SizeIs(3));
  EXPECT_EQ(shelf->List()[0].id(), "0000000000000005");
  EXPECT_EQ(shelf->removed(), 2u);
  EXPECT_THAT(told, SizeIs(3));
  EXPECT_FALSE(shelf->Find("1").ok());
  EXPECT_EQ(*shelf->Find("5"), shelf->PathOf("0000000000000005"));
  EXPECT_FALSE(shelf->Find("../5").ok());
  shelf = open(2);
  EXPECT_THAT(shelf->List(), SizeIs(2));
  EXPECT_EQ(shelf->List()[0].reason(), "a test");
}

TEST_F(IncidentsTest, OfAHostWithoutARingTheStoreHasTheRest) {
  auto store = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  HostBatch batch{.host = "h0", .run = 1, .sequence = 1};
  const std::vector<Addr> hops = {AddrOf("10.1.0.1"), AddrOf("10.2.0.1")};
  batch.hop_lists.push_back({HopsId(hops), hops});
  for (int i = 0; i < 5; ++i) {
    PathSample sample{.key = {NicOf(0), NicOf(2), 50'001, false}};
    sample.time_ns = kBegin + i * 10 * kSecond;
    sample.state = i < 3 ? PathState::kUp : PathState::kDead;
    sample.hops = HopsId(hops);
    sample.sent = 100;
    sample.lost = i < 3 ? 0 : 100;
    batch.paths.push_back(sample);
  }
  ASSERT_TRUE(store->Append({&batch, 1}).ok());
  const auto seconds = SecondsFromStore(*store, "h0", kBegin, kBegin + 100 * kSecond);
  ASSERT_TRUE(seconds.ok());
  ASSERT_THAT(*seconds, SizeIs(5));
  auto collection = Collection::Begin(Head(kId, 1), PathOf(kId), {}).value();
  ASSERT_TRUE(collection->AddSeconds("h0", *seconds).ok());
  ASSERT_TRUE(collection->Finish().ok());
  const absl::StatusOr<Bundle> bundle = LoadBundle(PathOf(kId));
  ASSERT_TRUE(bundle.ok());
  EXPECT_EQ(bundle->head.hosts(0).source(), "store");
  const pb::IncidentView view = ViewOf(*bundle);
  ASSERT_THAT(view.paths(), SizeIs(1));
  EXPECT_EQ(view.paths(0).worst(), pb::PATH_STATE_DEAD);
  EXPECT_EQ(view.paths(0).hops(1), "10.2.0.1");
  EXPECT_THAT(Replay(*bundle, Fabric(), {}).notes(0), HasSubstr("every 10 s"));
  EXPECT_FALSE(
      SecondsFromStore(*store, "nobody", kBegin, kBegin + kSecond).value_or(std::vector<std::string>{}).size());
}

}  // namespace
}  // namespace cw::fleet
