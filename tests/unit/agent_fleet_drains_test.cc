// SPDX-License-Identifier: Apache-2.0
// Drains that the fleet service orders, against an agent that is a table.
#include "userspace/agent/fleet_drains.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPort1[] = "10.1.0.1", kPort2[] = "10.1.0.3", kElsewhere[] = "10.9.9.9";

class FleetDrainsTest : public ::testing::Test {
 protected:
  FleetDrainsTest() {
    char name[] = "/tmp/cw-fleet-drains-XXXXXX";
    folder_ = mkdtemp(name);
    Start();
  }
  ~FleetDrainsTest() override { std::filesystem::remove_all(folder_); }

  void Start(bool allowed = true, const std::string& boot = "b") {
    drains_ = std::make_unique<FleetDrains>(
        folder_ + "/f.json", boot, allowed,
        FleetDrains::Asks{
            .drain = [this](const api::Caller& who, const v1::DrainRequest& r) -> absl::StatusOr<v1::ActionReply> {
              if (r.what() == elsewhere_) return absl::NotFoundError("no path");
              if (silent_ == r.what()) return absl::AbortedError("switches do not answer");
              if (refuses_ == r.what()) return absl::FailedPreconditionError("nothing would remain");
              if (const auto standing = table_.find(r.what()); standing != table_.end()) {
                if (standing->second.kind() != r.kind()) return absl::AlreadyExistsError("drained already");
              }
              table_[r.what()].set_what(r.what());
              table_[r.what()].set_kind(r.kind());
              for_s_[r.what()] = r.for_s();
              who_ = who.name;
              v1::ActionReply reply;
              reply.set_effect("flows leave");
              reply.set_undo("undrain " + r.what());
              return reply;
            },
            .undrain = [this](const api::Caller&, const v1::UndrainRequest& r) -> absl::StatusOr<v1::ActionReply> {
              if (table_.erase(r.what()) == 0) return absl::NotFoundError("not drained");
              return v1::ActionReply();
            },
            .drains = [this]() -> absl::StatusOr<v1::DrainsReply> {
              v1::DrainsReply reply;
              for (const auto& [what, drain] : table_) *reply.add_drains() = drain;
              return reply;
            }});
  }
  static v1::DrainOrders Orders(std::map<uint64_t, std::vector<std::string>> wanted, const std::string& by = "one") {
    v1::DrainOrders orders;
    orders.set_instance(by);
    for (const auto& [id, whats] : wanted) {
      v1::DrainOrder& order = *orders.add_orders();
      order.set_id(id);
      order.set_who("alice");
      for (const std::string& what : whats) {
        order.add_targets()->set_kind(v1::DRAIN_KIND_SPINE);
        order.mutable_targets(order.targets_size() - 1)->set_what(what);
      }
    }
    return orders;
  }
  // State and words of the first order; "" = no news, or what was said before.
  std::string After(absl::Duration wait) {
    const std::string before = said_, now = Reported(wait);
    return now == before ? "" : now;
  }
  std::string Reported(absl::Duration wait) {
    now_ += wait;
    const std::optional<v1::DrainReport> report = drains_->Step(now_);
    if (!report.has_value()) return "";
    if (report->answers().empty()) return said_ = "none";
    return said_ = absl::StrCat(v1::DrainState_Name(report->answers(0).state()).substr(12), ": ",
                                report->answers(0).words());
  }
  std::string Give(const v1::DrainOrders& orders) {
    drains_->Take(orders);
    return Reported(absl::ZeroDuration());
  }
  std::vector<std::string> Drained() const {
    std::vector<std::string> all;
    for (const auto& [what, drain] : table_) all.push_back(what);
    return all;
  }
  void SetSafe(bool safe) {
    for (auto& [what, drain] : table_) drain.set_safe(safe);
  }

  std::string folder_, refuses_, silent_, who_;
  std::string elsewhere_ = kElsewhere, said_;
  std::map<std::string, v1::Drain> table_;
  std::map<std::string, double> for_s_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::unique_ptr<FleetDrains> drains_;
};

TEST_F(FleetDrainsTest, DrainsAllPortsSaysWhenItIsSafeAndGivesThemBack) {
  EXPECT_EQ(Give(Orders({{1, {kPort1, kPort2, kElsewhere}}})), "UNDER_WAY: flows leave");
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
  EXPECT_EQ(who_, "alice");
  EXPECT_EQ(After(absl::Seconds(1)), "") << "no news";
  table_[kPort1].set_safe(true);
  EXPECT_EQ(After(absl::Seconds(1)), "") << "half of it";
  SetSafe(true);
  EXPECT_EQ(After(absl::Milliseconds(100)), "") << "it looks once a second";
  EXPECT_EQ(After(absl::Seconds(1)), "SAFE: safe to pull");
  SetSafe(false);
  EXPECT_EQ(After(absl::Seconds(1)), "UNDER_WAY: flows leave");
  EXPECT_EQ(Give(Orders({})), "none");
  EXPECT_THAT(Drained(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/f.json"));
}

TEST_F(FleetDrainsTest, WhereHalfIsRefusedNothingIsDrained) {
  refuses_ = kPort2;
  EXPECT_EQ(Give(Orders({{1, {kPort1, kPort2}}})), "REFUSED: nothing would remain");
  EXPECT_THAT(Drained(), IsEmpty());
  EXPECT_EQ(After(absl::Seconds(60)), "");
  refuses_ = "";
  EXPECT_EQ(After(absl::Seconds(59)), "");
  EXPECT_THAT(After(absl::Seconds(1)), HasSubstr("UNDER_WAY")) << "it is tried again each minute";
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
}

TEST_F(FleetDrainsTest, WhatIsRefusedLaterTakesNothingBack) {
  Give(Orders({{1, {kPort1, kElsewhere}}}));
  SetSafe(true);
  EXPECT_EQ(After(absl::Seconds(1)), "SAFE: safe to pull");
  elsewhere_ = "";  // a path is found that crosses it
  refuses_ = kElsewhere;
  EXPECT_EQ(After(absl::Seconds(10)), "REFUSED: nothing would remain");
  EXPECT_THAT(Drained(), ElementsAre(kPort1)) << "it may be in somebody's hands";
  refuses_ = "";
  EXPECT_THAT(After(absl::Seconds(60)), HasSubstr("UNDER_WAY"));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kElsewhere));
}

TEST_F(FleetDrainsTest, WhereSwitchesDoNotAnswerItIsNeverSafe) {
  silent_ = kPort2;
  EXPECT_THAT(Give(Orders({{1, {kPort1, kPort2}}})), HasSubstr("UNDER_WAY: paths of this host may cross"));
  SetSafe(true);
  EXPECT_EQ(After(absl::Seconds(30)), "");
  silent_ = "";
  After(absl::Minutes(1));
  SetSafe(true);
  EXPECT_THAT(After(absl::Seconds(1)), HasSubstr("SAFE"));
}

TEST_F(FleetDrainsTest, AHostWithoutSuchPathsIsSafeOnlyAfterItHasLookedForThem) {
  EXPECT_THAT(Give(Orders({{1, {kElsewhere}}})), HasSubstr("UNDER_WAY: no path"));
  EXPECT_EQ(After(absl::Seconds(9)), "");
  EXPECT_THAT(After(absl::Seconds(1)), HasSubstr("SAFE: no path"));
}

TEST_F(FleetDrainsTest, WhatTheHostsOperatorSaysCounts) {
  table_[kPort1].set_what(kPort1);
  Give(Orders({{1, {kPort1, kPort2}}}));
  Give(Orders({}));
  EXPECT_THAT(Drained(), ElementsAre(kPort1)) << "drained on the host before, and stays so";
  Give(Orders({{2, {kPort2}}}));
  table_.erase(kPort2);
  EXPECT_THAT(After(absl::Seconds(1)), HasSubstr("REFUSED: 10.1.0.3 was undrained on the host"));
  EXPECT_EQ(After(absl::Seconds(60)), "");
  EXPECT_THAT(Drained(), ElementsAre(kPort1));
  Start();
  EXPECT_THAT(Give(Orders({{2, {kPort2}}})), HasSubstr("REFUSED: 10.1.0.3 was undrained on the host")) << "a restart";
  EXPECT_THAT(Drained(), ElementsAre(kPort1));
}

// Whoever reads it knows by that that the agent still looks.
TEST_F(FleetDrainsTest, RepeatsWhatItSaid) {
  Give(Orders({{1, {kPort1}}}));
  EXPECT_FALSE(drains_->Step(now_ + absl::Seconds(1)).has_value());
  EXPECT_TRUE(drains_->Step(now_ + absl::Seconds(2)).has_value());
  EXPECT_FALSE(drains_->Step(now_ + absl::Seconds(3)).has_value());
  EXPECT_TRUE(drains_->Step(now_ + absl::Seconds(4)).has_value());
}

// Ports of a switch that became known later.
TEST_F(FleetDrainsTest, AnOrderThatGrewIsCarriedOutAtOnceAndAnsweredAsAWhole) {
  Give(Orders({{1, {kPort1}}}));
  SetSafe(true);
  EXPECT_THAT(After(absl::Minutes(10)), HasSubstr("SAFE"));
  drains_->Take(Orders({{1, {kPort1, kPort2}}}));
  const std::optional<v1::DrainReport> report = drains_->Step(now_);
  ASSERT_TRUE(report.has_value());
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
  EXPECT_EQ(report->answers(0).state(), v1::DRAIN_STATE_UNDER_WAY);
  EXPECT_EQ(report->answers(0).targets(), 2u);
}

TEST_F(FleetDrainsTest, TwoOrdersOfOneThingEndOneByOne) {
  Give(Orders({{1, {kPort1}}, {2, {kPort1, kPort2}}}));
  Give(Orders({{2, {kPort1, kPort2}}}));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
  Give(Orders({}));
  EXPECT_THAT(Drained(), IsEmpty());
}

// A link and the switch where it ends.
TEST_F(FleetDrainsTest, OrdersOfTwoKindsShareAPort) {
  v1::DrainOrders orders = Orders({{1, {kPort1}}, {2, {kPort1, kPort2}}});
  orders.mutable_orders(0)->mutable_targets(0)->set_kind(v1::DRAIN_KIND_LINK);
  EXPECT_THAT(Give(orders), HasSubstr("UNDER_WAY"));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
  Give(Orders({{2, {kPort1, kPort2}}}));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2));
  Give(Orders({}));
  EXPECT_THAT(Drained(), IsEmpty());
}

TEST_F(FleetDrainsTest, TheLastEndOfTwoOrdersCounts) {
  v1::DrainOrders orders = Orders({{1, {kPort1}}, {2, {kPort1}}});
  orders.mutable_orders(0)->set_left_s(90);
  Give(orders);
  EXPECT_EQ(for_s_[kPort1], 0) << "the second order has none";
  orders = Orders({{1, {kPort2}}, {2, {kPort2}}}, "another");
  orders.mutable_orders(1)->set_left_s(90);
  Give(orders);
  EXPECT_EQ(for_s_[kPort2], 0) << "the first had none already";
}

TEST_F(FleetDrainsTest, WhatTheOperatorKeptFreeForAWhileIsKeptFreeAfterIt) {
  table_[kPort1].set_what(kPort1);
  Give(Orders({{1, {kPort1}}}));
  SetSafe(true);
  After(absl::Minutes(10));
  table_.erase(kPort1);
  EXPECT_THAT(After(absl::Seconds(1)), HasSubstr("UNDER_WAY"));
  EXPECT_THAT(Drained(), ElementsAre(kPort1));
}

TEST_F(FleetDrainsTest, AfterARestartItGivesBackWhatEndedMeanwhileAndGoesOnWithTheRest) {
  Give(Orders({{1, {kPort1}}, {2, {kPort2}}}));
  Start();
  After(absl::Seconds(2));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2)) << "the service has not spoken yet";
  Give(Orders({}, "another"));
  EXPECT_THAT(Drained(), ElementsAre(kPort1, kPort2)) << "another service's word is not this one's";
  EXPECT_THAT(Give(Orders({{2, {kPort2}}})), HasSubstr("UNDER_WAY"));
  EXPECT_THAT(Drained(), ElementsAre(kPort2));
  Start(/*allowed=*/false);
  EXPECT_EQ(After(absl::Seconds(1)), "");
  EXPECT_THAT(Drained(), IsEmpty()) << "the host's configuration wins";
}

TEST_F(FleetDrainsTest, AFileOfAnotherBootIsVoid) {
  Give(Orders({{1, {kPort1}}}));
  table_.clear();
  Start(true, "next boot");
  EXPECT_THAT(Give(Orders({{1, {kPort1}}})), HasSubstr("UNDER_WAY"));
  EXPECT_THAT(Drained(), ElementsAre(kPort1));
}

TEST_F(FleetDrainsTest, ItsEndStandsOnTheHostToo) {
  v1::DrainOrders orders = Orders({{1, {kPort1}}});
  orders.mutable_orders(0)->set_left_s(90);
  Give(orders);
  EXPECT_EQ(for_s_[kPort1], 90);
  table_.clear();  // the agent ended it
  EXPECT_THAT(After(absl::Seconds(90)), testing::Not(HasSubstr("REFUSED"))) << "nobody undid it";
  EXPECT_THAT(Drained(), IsEmpty());
}

}  // namespace
}  // namespace cw::agent
