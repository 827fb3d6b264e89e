// SPDX-License-Identifier: Apache-2.0
// Drains over the fleet with what is around them: the store, hosts that connect, and their reports.
#include "userspace/fleet/main/drainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/unit/fleet_failing_store.h"
#include "userspace/fleet/main/kept_time.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kDrain = 1'800'000'000'000'000'000;
constexpr int64_t kNewest = kDrain;

class DrainerTest : public ::testing::Test {
 protected:
  DrainerTest() { Restart(); }
  // A clock that the tests move; nobody keeps it right.
  OrderClock::Reads Reads() {
    return {.wall_ns = [this] { return absl::ToUnixNanos(wall_); },
            .steady = [this] { return steady_; },
            .synchronised = [] { return false; }};
  }
  // The service anew, on the store as it is.
  void Restart() {
    drainer_.reset();
    clock_ = std::make_unique<OrderClock>(kNewest, Reads());
    query_.reset();
    uplink_.reset();
    ingest_ = std::make_unique<Ingest>(store_, "one", IngestLimits{});
    uplink_ = std::make_unique<UplinkService>(*ingest_, callers_);
    query_ = std::make_unique<Query>(store_, "one", FleetFile{}, [this](const auto& look) { uplink_->EachHost(look); });
    drainer_ = std::make_unique<Drainer>(*uplink_, *query_, store_, *clock_, ReadDrains(store_, "one").value());
  }
  // An order that the store has, of the service before.
  void PutDrain(int64_t end_ns = 0) {
    pb::FleetDrain drain;
    drain.set_id(IdText(kDrain));
    drain.set_kind("switch");
    drain.set_name("spine1");
    drain.set_start_ns(kDrain);
    drain.set_end_ns(end_ns);
    drain.add_addresses("10.1.0.1");
    ASSERT_TRUE(store_.PutOrder({"drain", kDrain, drain.SerializeAsString()}).ok());
  }
  void Connect(const std::string& host) {
    pb::Hello hello;
    hello.set_host(host);
    hello.set_run(7);
    hello.set_takes_drains(true);
    ASSERT_TRUE(ingest_->Connect(hello, {.names = {host}}, absl::Now()).ok());
  }
  static pb::FleetUndrainRequest Named(const std::string& name) {
    pb::FleetUndrainRequest request;
    request.set_name(name);
    return request;
  }
  static pb::DrainReport Report(pb::DrainState state) {
    pb::DrainReport report;
    pb::DrainAnswer& answer = *report.add_answers();
    answer.set_id(kDrain);
    answer.set_state(state);
    return report;
  }
  // "a safe, b asked: under way"
  std::string Show() {
    const absl::StatusOr<pb::FleetDrainsReply> reply = drainer_->Drains();
    if (!reply.ok()) return std::string(reply.status().message());
    std::string text;
    for (const pb::FleetDrain& drain : reply->drains()) {
      for (const pb::FleetDrainHost& host : drain.hosts())
        absl::StrAppend(&text, text.empty() ? "" : ", ", host.host(), " ", host.state());
      absl::StrAppend(&text, ": ", drain.state());
    }
    return text;
  }

  const std::unique_ptr<Store> real_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  FailingStore store_{*real_};
  Callers callers_{tls::Files{}};
  std::unique_ptr<Ingest> ingest_;
  std::unique_ptr<UplinkService> uplink_;
  std::unique_ptr<Query> query_;
  absl::Time wall_ = absl::FromUnixNanos(kNewest), steady_ = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<OrderClock> clock_;
  std::unique_ptr<Drainer> drainer_;
};

TEST_F(DrainerTest, AfterARestartNothingIsSafeBeforeAllHostsAreBack) {
  ASSERT_TRUE(store_.PutHosts({{"a"}, {"b"}, {"gone", "", 5}}).ok());
  PutDrain();
  Restart();
  EXPECT_EQ(Show(), "a not connected, b not connected: refused");
  Connect("a");
  drainer_->Take("a", Report(pb::DRAIN_STATE_SAFE));
  EXPECT_EQ(Show(), "a safe, b not connected: refused");
  Connect("b");
  EXPECT_EQ(Show(), "a safe, b asked: under way");
  drainer_->Take("b", Report(pb::DRAIN_STATE_SAFE));
  EXPECT_EQ(Show(), "a safe, b safe: safe");
}

TEST_F(DrainerTest, DoesNotBeginWithoutItsOrders) {
  PutDrain();
  EXPECT_EQ(ReadDrains(store_, "one")->ids().size(), 1u);
  ASSERT_TRUE(store_.PutOrder({"drain", kDrain + 1, "nonsense"}).ok());
  const absl::Status damaged = ReadDrains(store_, "one").status();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(absl::StrCat("AND id = ", kDrain + 1, "\"")));
  store_.fails_orders = true;
  const absl::Status failed = ReadDrains(store_, "one").status();
  EXPECT_TRUE(absl::IsResourceExhausted(failed));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the disk is full"));
}

TEST_F(DrainerTest, EndsThoughTheDiskIsFullAndIsForgottenLater) {
  PutDrain();
  Restart();
  store_.fails_orders = true;
  const absl::StatusOr<pb::FleetActionReply> reply = drainer_->Undrain(Named("spine1"), {.name = "alice"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->effect(), HasSubstr("cannot forget it yet"));
  EXPECT_THAT(drainer_->OrdersFor("a").orders(), IsEmpty());
  const absl::Time now = absl::Now();
  drainer_->Tick(now);
  store_.fails_orders = false;
  EXPECT_THAT(*store_.Orders("drain"), SizeIs(1));
  drainer_->Tick(now + absl::Seconds(29));
  EXPECT_THAT(*store_.Orders("drain"), SizeIs(1)) << "a disk that is full is not asked each second";
  drainer_->Tick(now + absl::Seconds(30));
  EXPECT_THAT(*store_.Orders("drain"), IsEmpty());
}

TEST_F(DrainerTest, OneWhoseTimeIsOverEndsOnceThoughTheDiskIsFull) {
  PutDrain(kNewest + absl::ToInt64Nanoseconds(absl::Hours(1)));
  Restart();
  store_.fails_orders = true;
  drainer_->Tick(steady_);
  EXPECT_NE(Show(), "");
  steady_ += absl::Hours(1);
  drainer_->Tick(steady_);
  EXPECT_EQ(Show(), "");
  EXPECT_TRUE(absl::IsNotFound(drainer_->Undrain(Named("spine1"), {}).status()));
  store_.fails_orders = false;
  drainer_->Tick(steady_ + absl::Hours(1));
  EXPECT_THAT(*store_.Orders("drain"), IsEmpty());
}

// Ended every 14 s by SIGKILL, on a host whose clock nobody keeps right: an order of 30 s lasts no longer for it.
TEST_F(DrainerTest, ADrainEndsThoughTheServiceIsKilledAgainAndAgain) {
  PutDrain(kNewest + absl::ToInt64Nanoseconds(absl::Seconds(30)));
  wall_ += absl::Hours(1);
  for (int life = 0; life < 3; ++life) {
    Restart();
    clock_ = std::make_unique<OrderClock>(NewestTime(store_), Reads());
    drainer_ = std::make_unique<Drainer>(*uplink_, *query_, store_, *clock_, ReadDrains(store_, "one").value());
    drainer_->Tick(steady_);
    EXPECT_NE(Show(), "") << life;
    steady_ += absl::Seconds(10);
    ASSERT_TRUE(KeepTime(store_, clock_->NowNs()).ok());
    steady_ += absl::Seconds(4);
    drainer_->Tick(steady_);
  }
  EXPECT_EQ(Show(), "") << "30 s of it ran, but for the 4 s of each life";
}

// Attack "time": a clock that is 400 days ahead at a start ends no drain, and one that is set while it runs neither.
TEST_F(DrainerTest, AClockThatIsAheadEndsNoDrain) {
  PutDrain(kNewest + absl::ToInt64Nanoseconds(absl::Hours(1)));
  wall_ = absl::FromUnixNanos(kNewest) + absl::Hours(24 * 400);
  Restart();
  drainer_->Tick(steady_);
  EXPECT_NE(Show(), "");
  EXPECT_NEAR(drainer_->OrdersFor("a").orders(0).left_s(), 3600, 1);
  const absl::StatusOr<pb::FleetDrainsReply> shown = drainer_->Drains();
  EXPECT_EQ(absl::FromUnixNanos(shown->drains(0).end_ns()), wall_ + absl::Hours(1)) << "as people's clocks have it";
  wall_ += absl::Hours(24 * 400);
  steady_ += absl::Minutes(59);
  drainer_->Tick(steady_);
  EXPECT_NEAR(drainer_->OrdersFor("a").orders(0).left_s(), 60, 1);
  wall_ -= absl::Hours(24 * 1000);
  steady_ += absl::Minutes(1);
  drainer_->Tick(steady_);
  EXPECT_EQ(Show(), "");
}

}  // namespace
}  // namespace cw::fleet
