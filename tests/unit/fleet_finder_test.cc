// SPDX-License-Identifier: Apache-2.0
// The search for findings with what is around it: hosts that tell, the store, incidents, and people's mutes.
#include "userspace/fleet/main/finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>

#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/unit/fleet_failing_store.h"
#include "userspace/fleet/main/keeper.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class FinderTest : public ::testing::Test {
 protected:
  FinderTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cw_finder_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FinderTest() override {
    finder_.reset();
    incidents_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    finder_.reset();
    incidents_ = std::make_unique<IncidentTaker>(IncidentOptions{.before = absl::Seconds(5), .after = absl::Seconds(5)},
                                                 Shelf::Open(folder_, {}, [](const std::string&) {}).value(), uplink_,
                                                 store_, query_);
    finder_ = std::make_unique<Finder>(uplink_, store_, alerts_, drainer_, muter_, *incidents_, FleetFile{}, Rules{});
  }
  // A host tells of a process of a job, and of what happened.
  void Tell(const std::string& host, const std::string& job, std::vector<pb::Event> events = {}) {
    pb::Hello hello;
    hello.set_host(host);
    hello.set_run(7);
    const auto welcome = ingest_.Connect(hello, {.names = {host}}, absl::Now());
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    pb::Batch batch;
    batch.set_host(host);
    batch.set_run(7);
    batch.set_sequence(welcome->acknowledged_sequence() + 1);
    batch.set_to_ns(absl::GetCurrentTimeNanos());
    batch.set_from_ns(batch.to_ns() - 1'000'000'000);
    pb::PathName& path = *batch.mutable_definitions()->add_paths();
    path.set_path(1);
    path.set_local("aaaa");
    path.set_remote("bbbb");
    path.set_udp_port(5);
    batch.add_paths()->set_path(1);
    if (!job.empty()) {
      pb::Job& rank = *batch.add_jobs();
      rank.set_id(job);
      rank.set_pid(10);
      rank.set_ranks(3);
    }
    for (const pb::Event& event : events) {
      pb::FleetEvent& told = *batch.add_events();
      *told.mutable_event() = event;
      told.set_time_ns(batch.to_ns());
    }
    EXPECT_FALSE(ingest_.Enqueue(host, batch, absl::Now()).has_value());
    EXPECT_THAT(ingest_.Flush(absl::Now()), SizeIs(1));
  }
  static pb::Event EventOf(uint64_t seq, const std::string& type,
                           const std::vector<std::pair<std::string, std::string>>& evidence) {
    pb::Event event;
    event.set_seq(seq);
    event.set_type(type);
    event.set_severity(pb::SEVERITY_ALERT);
    for (const auto& [name, value] : evidence) {
      event.add_evidence()->set_name(name);
      event.mutable_evidence(event.evidence_size() - 1)->set_value(value);
    }
    return event;
  }
  std::vector<std::string> AffectedHosts(int of) {
    std::vector<std::string> hosts;
    const pb::Incident incident = incidents_->List().incidents(of);
    for (const pb::IncidentHost& host : incident.hosts()) {
      if (host.affected()) hosts.push_back(host.host());
    }
    return hosts;
  }
  // Scopes of what the store keeps as going on.
  std::vector<std::string> Open() {
    std::vector<std::string> scopes;
    const auto kept = store_.Findings({.open = true});
    EXPECT_TRUE(kept.ok()) << kept.status();
    for (const StoredFinding& stored : *kept) {
      pb::FleetFinding finding;
      if (finding.ParseFromString(stored.body)) scopes.push_back(finding.scope());
    }
    return scopes;
  }

  std::string folder_;
  const std::unique_ptr<Store> real_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  FailingStore store_{*real_};
  Ingest ingest_{store_, "one", {}};
  Callers callers_{tls::Files{}};
  UplinkService uplink_{ingest_, callers_};
  Query query_{store_, "one", {}, [this](const auto& look) { uplink_.EachHost(look); }};
  OrderClock clock_{0};
  Drainer drainer_{uplink_, query_, store_, clock_, DrainBook("one")};
  Muter muter_{store_, clock_};
  Alerts alerts_{{}, {}};
  std::unique_ptr<IncidentTaker> incidents_;
  std::unique_ptr<Finder> finder_;
};

TEST_F(FinderTest, ANicWithoutCarrierIsFoundKeptAndGoesOnAfterARestart) {
  Tell("h1", "", {EventOf(1, "nic", {{"nic", "eth2"}, {"carrier", "down"}})});
  Start();
  ASSERT_TRUE(lab::Eventually([&] { return Open() == std::vector<std::string>{"NIC eth2 of h1"}; }));
  EXPECT_TRUE(lab::Eventually([&] { return finder_->numbers().open[static_cast<size_t>(Cause::kNicDown)] == 1; }));
  Start();
  ASSERT_TRUE(lab::Eventually([&] { return finder_->numbers().evaluations > 1; }));
  EXPECT_THAT(Open(), ElementsAre("NIC eth2 of h1")) << "it is the one that was";
}

TEST_F(FinderTest, AStallTakesTheRingsOfAllHostsOfItsJob) {
  for (const char* host : {"h1", "h2", "h3"}) Tell(host, "00000000000000c1");
  Tell("h4", "00000000000000c2");
  const pb::Event stands = EventOf(1, "job", {{"job", "00000000000000c1"}});
  Tell("h2", "", {stands});
  Start();
  ASSERT_TRUE(lab::Eventually([&] { return incidents_->List().incidents_size() == 1; }));
  EXPECT_THAT(AffectedHosts(0), ElementsAre("h1", "h2", "h3"));
}

// Otherwise one host could have any other's ring taken.
TEST_F(FinderTest, AHostHasNoWordOfAJobThatIsNotItsOwn) {
  for (const char* host : {"h1", "h2", "h3"}) Tell(host, "00000000000000c1");
  Tell("h4", "00000000000000c2", {EventOf(1, "job", {{"job", "00000000000000c1"}})});
  Start();
  ASSERT_TRUE(lab::Eventually([&] { return incidents_->List().incidents_size() == 1; }));
  EXPECT_THAT(AffectedHosts(0), ElementsAre("h4"));
}

// Hosts send it again; the service says that it has trouble.
TEST_F(FinderTest, ACommitThatTheStoreDoesNotTakeIsCounted) {
  Tell("h1", "");
  pb::Batch batch;
  batch.set_host("h1");
  batch.set_run(7);
  batch.set_sequence(2);
  batch.set_to_ns(absl::GetCurrentTimeNanos());
  EXPECT_FALSE(ingest_.Enqueue("h1", batch, absl::Now()).has_value());
  store_.fails = true;
  Keeper keeper(uplink_, store_, clock_, {});
  EXPECT_TRUE(lab::Eventually([&] { return keeper.failures() == 1; }));
}

}  // namespace
}  // namespace cw::fleet
