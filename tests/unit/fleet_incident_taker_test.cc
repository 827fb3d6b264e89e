// SPDX-License-Identifier: Apache-2.0
// When the service takes an incident by itself, and when it does not.
#include "userspace/fleet/main/incident_taker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class IncidentTakerTest : public ::testing::Test {
 protected:
  IncidentTakerTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cw_taker_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    for (const char* host : {"h0", "h1"}) {
      pb::Hello hello;
      hello.set_host(host);
      hello.set_run(1);
      EXPECT_TRUE(ingest_.Connect(hello, {.names = {host}, .addresses = {}, .from = ""}, absl::Now()).ok());
    }
  }
  ~IncidentTakerTest() override {
    taker_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start(std::optional<Severity> least, absl::Duration after = absl::Seconds(1)) {
    IncidentOptions options{.least = least, .before = absl::Seconds(5), .after = after};
    options.limits.patience = absl::ZeroDuration();
    auto shelf = Shelf::Open(folder_, {}, [](const std::string&) {}).value();
    taker_ = std::make_unique<IncidentTaker>(std::move(options), std::move(shelf), uplink_, *store_, query_);
  }
  // Of a span that is over, so it is done at once.
  static Finding Of(Cause cause, const std::string& scope, uint64_t id) {
    Finding finding{.id = id, .cause = cause, .scope = scope};
    finding.start_ns = absl::GetCurrentTimeNanos() - 10 * kSecond;
    finding.hosts = {"h0"};
    return finding;
  }
  bool Has(int done) {
    const pb::IncidentListReply reply = taker_->List();
    if (reply.incidents_size() != done) return false;
    return std::all_of(reply.incidents().begin(), reply.incidents().end(),
                       [](const pb::Incident& incident) { return incident.state() == "done"; });
  }

  std::string folder_;
  const std::unique_ptr<Store> store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  Ingest ingest_{*store_, "one", {}};
  Callers callers_{tls::Files{}};
  UplinkService uplink_{ingest_, callers_};
  Query query_{*store_, "one", {}, [this](const auto& look) { uplink_.EachHost(look); }};
  std::unique_ptr<IncidentTaker> taker_;
};

TEST_F(IncidentTakerTest, CriticalFindingsAndStandingCollectivesAreTakenOnce) {
  Start(Severity::kCritical);
  const Finding dead = Of(Cause::kSwitchDead, "switch spine1", 7);
  taker_->Found(Of(Cause::kLinkDead, "link 1>2", 6));  // a warning
  taker_->Found(dead);
  EXPECT_TRUE(lab::Eventually([&] { return Has(1); })) << taker_->List().DebugString();
  pb::Incident incident = taker_->List().incidents(0);
  EXPECT_EQ(incident.reason(), "switch dead: switch spine1");
  EXPECT_EQ(incident.pivot_ns(), dead.start_ns);
  ASSERT_EQ(incident.hosts_size(), 2);
  EXPECT_TRUE(incident.hosts(0).affected());
  EXPECT_FALSE(incident.hosts(1).affected()) << "a witness";
  EXPECT_EQ(incident.hosts(0).missing(), "it was not connected");

  taker_->Found(dead);                                        // news of the same
  taker_->Found(Of(Cause::kSwitchDead, "switch spine1", 8));  // the same place, soon again
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().not_taken() == 1; }));
  HostEvent stands{.host = "h1", .type = "job", .time_ns = absl::GetCurrentTimeNanos() - 10 * kSecond, .alert = true};
  stands.evidence = {{"job", "812"}};
  taker_->Stands(stands, {});
  EXPECT_TRUE(lab::Eventually([&] { return Has(2); })) << taker_->List().DebugString();
  stands.host = "h0";
  taker_->Stands(stands, {});  // another host of the same job
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().not_taken() == 2; }));
  EXPECT_TRUE(Has(2));
}

TEST_F(IncidentTakerTest, AServiceThatBeganAnewTakesNoneOfAFindingThatHasOne) {
  Start(Severity::kCritical);
  const Finding dead = Of(Cause::kSwitchDead, "switch spine1", 7);
  taker_->Found(dead);
  EXPECT_TRUE(lab::Eventually([&] { return Has(1); })) << taker_->List().DebugString();
  taker_.reset();
  Start(Severity::kCritical);
  EXPECT_TRUE(Has(1)) << "it is on the shelf";
  taker_->Found(dead);
  taker_->Found(Of(Cause::kSwitchDead, "switch spine2", 8));
  EXPECT_TRUE(lab::Eventually([&] { return Has(2); })) << taker_->List().DebugString();
  EXPECT_EQ(taker_->List().incidents(0).finding().scope(), "switch spine2");
}

TEST_F(IncidentTakerTest, ByItselfItTakesSoManyInAnHourAndPeopleAreNotHeldToThat) {
  Start(Severity::kCritical);
  for (uint64_t i = 1; i <= IncidentTaker::kMostByItselfInHour; ++i) {
    taker_->Found(Of(Cause::kSwitchDead, "switch s" + std::to_string(i), i));
    ASSERT_TRUE(lab::Eventually([&] { return Has(static_cast<int>(i)); })) << taker_->List().DebugString();
  }
  taker_->Found(Of(Cause::kSwitchDead, "switch another", 99));
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().not_taken() == 1; }));
  pb::IncidentTakeRequest request;
  request.add_hosts("h1");
  request.set_from_ns(absl::GetCurrentTimeNanos() - 10 * kSecond);
  request.set_to_ns(absl::GetCurrentTimeNanos() - 2 * kSecond);
  EXPECT_TRUE(taker_->Take(request, absl::Now()).ok());
  EXPECT_TRUE(lab::Eventually([&] { return Has(static_cast<int>(IncidentTaker::kMostByItselfInHour) + 1); }));
}

TEST_F(IncidentTakerTest, OneHostsWordDoesNotUseUpWhatFindingsNeed) {
  Start(Severity::kCritical);
  HostEvent stands{.host = "h1", .type = "job", .time_ns = absl::GetCurrentTimeNanos() - 10 * kSecond, .alert = true};
  for (int job = 1; job <= 12; ++job) {
    stands.evidence = {{"job", std::to_string(job)}};
    taker_->Stands(stands, {});
  }
  const uint64_t left_out = 12 - IncidentTaker::kMostStandsOfHost;
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().not_taken() == left_out; })) << taker_->List().DebugString();
  EXPECT_TRUE(lab::Eventually([&] { return Has(IncidentTaker::kMostStandsOfHost); }));
  stands.host = "h0";
  stands.evidence = {{"job", "of another host"}};
  taker_->Stands(stands, {});
  EXPECT_TRUE(lab::Eventually([&] { return Has(IncidentTaker::kMostStandsOfHost + 1); }));
  taker_->Found(Of(Cause::kSwitchDead, "switch spine1", 7));
  EXPECT_TRUE(lab::Eventually([&] { return Has(IncidentTaker::kMostStandsOfHost + 2); }));
}

TEST_F(IncidentTakerTest, OnePlaceIsPeoplesAndWhatIsOfYesterdayIsLeftOut) {
  Start(Severity::kCritical, absl::Minutes(30));
  Finding old = Of(Cause::kSwitchDead, "switch old", 90);
  old.start_ns = absl::ToUnixNanos(absl::Now() - IncidentTaker::kRingHolds) - kSecond;
  taker_->Found(old);
  for (uint64_t i = 1; i <= IncidentTaker::kMostAtOnce; ++i)
    taker_->Found(Of(Cause::kSwitchDead, "switch s" + std::to_string(i), i));
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().not_taken() == 1; })) << taker_->List().DebugString();
  const pb::IncidentListReply there = taker_->List();
  ASSERT_EQ(there.incidents_size(), static_cast<int>(IncidentTaker::kMostByItselfAtOnce));
  EXPECT_EQ(there.incidents(0).finding().scope(), "switch s3");
  EXPECT_TRUE(absl::IsFailedPrecondition(taker_->Find(there.incidents(0).id()).status()));
  pb::IncidentTakeRequest request;
  request.add_hosts("h1");
  request.set_from_ns(absl::GetCurrentTimeNanos() - 10 * kSecond);
  request.set_to_ns(absl::GetCurrentTimeNanos() + 1000 * kSecond);
  EXPECT_TRUE(taker_->Take(request, absl::Now()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(taker_->Take(request, absl::Now()).status()));
}

TEST_F(IncidentTakerTest, NoneIsTakenWhereNoneIsWanted) {
  Start(std::nullopt);
  taker_->Found(Of(Cause::kSwitchDead, "switch spine1", 7));
  pb::IncidentTakeRequest request;
  request.set_from_ns(absl::GetCurrentTimeNanos() - 10 * kSecond);
  request.set_to_ns(absl::GetCurrentTimeNanos());
  EXPECT_THAT(std::string(taker_->Take(request, absl::Now()).status().message()), HasSubstr("--finding ID"));
  request.add_hosts("h9");
  EXPECT_TRUE(absl::IsNotFound(taker_->Take(request, absl::Now()).status()));
  request.add_hosts("h1");
  request.set_from_ns(absl::GetCurrentTimeNanos() - 7200 * kSecond);
  EXPECT_TRUE(absl::IsInvalidArgument(taker_->Take(request, absl::Now()).status()));
  request.set_finding("77");
  EXPECT_TRUE(absl::IsNotFound(taker_->Take(request, absl::Now()).status()));
  EXPECT_EQ(taker_->List().incidents_size(), 0);
}

TEST_F(IncidentTakerTest, WhatNobodyAskedForIsCountedAndFillsNoMemory) {
  Start(std::nullopt);
  pb::RingAnswer answer;
  answer.set_id(5);
  answer.mutable_chunk()->add_seconds(std::string(100'000, 'x'));
  for (int i = 0; i < 1000; ++i) taker_->Take("h0", answer);
  EXPECT_TRUE(lab::Eventually([&] { return taker_->List().refused() == 1000; })) << taker_->List().DebugString();
}

}  // namespace
}  // namespace cw::fleet
