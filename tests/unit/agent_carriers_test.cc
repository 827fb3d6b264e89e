// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/carriers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CarriersPart : public ::testing::Test {
 protected:
  CarriersPart() {
    carriers_.LookAtAll();
    EXPECT_THAT(host_.events.all, IsEmpty()) << "up since the start";
  }

  void Read(bool up, uint64_t downs) {
    reading_ = metrics::LinkReading{.up = up, .downs = downs, .name = "eth0"};
    carriers_.LookAtAll();
  }
  uint64_t Outages() {
    const auto counts = links_.book().Counts(clock_.NowNs());
    const auto own = counts.find("eth0");
    return own == counts.end() ? 0 : own->second.flaps;
  }

  OnePair host_;
  ManualClock clock_{1000 * kSecond};
  LinkFlaps links_{testing::TempDir() + "/carriers_no_outages.json",
                   "boot",
                   host_.pairs,
                   host_.mesh,
                   clock_,
                   clock_,
                   host_.events,
                   {}};
  absl::StatusOr<metrics::LinkReading> reading_ = metrics::LinkReading{.up = true, .downs = 5, .name = "eth0"};
  std::map<uint32_t, absl::StatusOr<metrics::LinkReading>> devices_;  // where they are others than reading_
  absl::StatusOr<uint32_t> ifindex_ = OnePair::kIfindex;
  bool there_ = true, helped_ = false;
  int changed_ = 0;
  std::vector<telemetry::Event> ends_;
  Carriers carriers_{host_.nics,
                     links_,
                     clock_,
                     clock_,
                     host_.events,
                     {.read =
                          [this](uint32_t ifindex) {
                            const auto at = devices_.find(ifindex);
                            return at == devices_.end() ? reading_ : at->second;
                          },
                      .ifindex_of = [this](const std::string&) { return ifindex_; },
                      .is_there = [this](const config::NicConfig&) { return there_; },
                      .helped = [this](const NicState&) { return helped_; },
                      .changed = [this] { ++changed_; },
                      .start_anew = [this](telemetry::Event why) { ends_.push_back(std::move(why)); }}};
};

TEST_F(CarriersPart, ALossIsToldOnceAndCountedOnceThoughTheStateIsAheadOfTheCount) {
  Read(false, 5);
  EXPECT_EQ(Outages(), 1u);
  Read(false, 6);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("NIC eth0: its link is down, it has no carrier"));
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kAlert);
  EXPECT_EQ(Outages(), 1u);
  host_.events.Take();
  Read(true, 6);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("its link is up again"));
}

TEST_F(CarriersPart, LossesBetweenTwoLooksAreSeenByTheirCount) {
  Read(true, 8);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("lost its carrier 3 times and has it back"));
  EXPECT_EQ(Outages(), 3u);
}

TEST_F(CarriersPart, WhereAnotherNicCarriesItsPacketsNobodyIsWoken) {
  helped_ = true;
  Read(false, 6);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kNotice);
}

TEST_F(CarriersPart, WhatCannotBeReadIsAsItWas) {
  reading_ = absl::UnavailableError("");
  carriers_.LookAtAll();
  EXPECT_THAT(host_.events.all, IsEmpty());
  EXPECT_TRUE(host_.nics[0].link_up);
}

TEST_F(CarriersPart, ThePortOfAnRdmaDeviceIsAWitnessToo) {
  carriers_.OnRdmaPort("eth7", false);
  EXPECT_EQ(changed_, 0);
  carriers_.OnRdmaPort("eth0", false);
  carriers_.OnRdmaPort("eth0", false);
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("the port of its RDMA device is down"));
  EXPECT_EQ(changed_, 1);
  EXPECT_EQ(Outages(), 0u) << "the carrier's count says that";
}

TEST_F(CarriersPart, ADeadPathIsLaidToTheCarrierThatWasLostSinceItsLastSignOfLife) {
  cw_ev_slot verdict{};
  clock_.Advance(kSecond);
  verdict.ns = static_cast<uint64_t>(clock_.NowNs());
  verdict.silence_ns = kSecond / 50;
  EXPECT_FALSE(carriers_.Lost(host_.pair(), verdict));
  reading_->downs = 6;  // and it is back already
  EXPECT_TRUE(carriers_.Lost(host_.pair(), verdict));
  clock_.Advance(10 * kSecond);
  verdict.ns = static_cast<uint64_t>(clock_.NowNs());
  EXPECT_FALSE(carriers_.Lost(host_.pair(), verdict)) << "that was long before";
}

TEST_F(CarriersPart, ADeviceThatWasMadeAnewEndsTheAgentWhenAllAreThere) {
  there_ = false;
  ifindex_ = absl::NotFoundError("");
  reading_ = absl::NotFoundError("");
  carriers_.OnNews({.ifindexes = {OnePair::kIfindex}, .removed = {OnePair::kIfindex}});
  EXPECT_EQ(changed_, 1);
  ifindex_ = OnePair::kIfindex + 5;
  carriers_.LookAtAll();
  EXPECT_THAT(ends_, IsEmpty()) << "its address is not there yet";
  there_ = true;
  carriers_.LookAtAll();
  ASSERT_THAT(ends_, SizeIs(1));
  EXPECT_THAT(ends_[0].text, HasSubstr("NIC eth0 was removed and is there again"));
}

TEST_F(CarriersPart, ARenamedDeviceIsFollowedAndSaysSoOnce) {
  ifindex_ = absl::NotFoundError("");
  reading_->name = "rail0";
  carriers_.OnNews({.ifindexes = {OnePair::kIfindex}});
  carriers_.LookAtAll();
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].text, "NIC eth0 is now called rail0");
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kNotice);
  const NicState& nic = host_.nics[0];
  EXPECT_TRUE(nic.link_up);
  EXPECT_EQ(nic.device, "rail0");
  EXPECT_EQ(nic.Trouble(), "");
  EXPECT_EQ(nic.Note(), "eth0 is now called rail0: the agent follows it; name it so in the configuration");
  EXPECT_EQ(Outages(), 0u);
  host_.events.Take();
  carriers_.OnRdmaPort("eth0", false);
  EXPECT_THAT(host_.events.all, IsEmpty()) << "another device has that name";
  carriers_.OnRdmaPort("rail0", false);
  EXPECT_THAT(host_.events.all, SizeIs(1));
  carriers_.OnRdmaPort("rail0", true);
  host_.events.Take();
  reading_->name = "eth0";
  carriers_.LookAtAll();
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].text, "NIC eth0 is called so again");
  EXPECT_EQ(nic.Note(), "");
}

TEST_F(CarriersPart, ADeviceThatTakesTheNameOfARenamedOneIsNotTakenForIt) {
  reading_->name = "rail0";
  ifindex_ = OnePair::kIfindex + 5;  // of eth0, which is down; the fixture has no word of it
  carriers_.LookAtAll();
  carriers_.LookAtAll();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_TRUE(host_.nics[0].link_up);
  EXPECT_THAT(host_.events.all, SizeIs(1));
}

TEST_F(CarriersPart, TwoThatSwapTheirNamesAreBothFollowed) {
  constexpr uint32_t kOther = OnePair::kIfindex + 1;
  host_.nics.push_back({.config = {.name = "eth1"}, .device = "eth1", .ifindex = kOther});
  reading_->name = "eth1";
  devices_.emplace(kOther, metrics::LinkReading{.up = false, .downs = 1, .name = "eth0"});
  carriers_.LookAtAll();
  EXPECT_TRUE(host_.nics[0].link_up);
  EXPECT_FALSE(host_.nics[1].link_up) << "each by its own device";
  EXPECT_EQ(host_.nics[0].Note(), "eth0 is now called eth1: the agent follows it; name it so in the configuration");
  EXPECT_EQ(host_.nics[1].Note(), "eth1 is now called eth0: the agent follows it; name it so in the configuration");
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(CarriersPart, ANameThatAnotherOfOurNicsHasGotIsNoReturn) {
  constexpr uint32_t kOther = OnePair::kIfindex + 1;
  host_.nics.push_back({.config = {.name = "eth1"}, .device = "eth1", .ifindex = kOther});
  devices_.emplace(kOther, metrics::LinkReading{.up = true, .downs = 1, .name = "eth0"});
  reading_ = absl::NotFoundError("");
  ifindex_ = kOther;
  carriers_.LookAtAll();
  carriers_.LookAtAll();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_FALSE(host_.nics[0].link_up);
  EXPECT_TRUE(host_.nics[1].link_up);
  EXPECT_THAT(host_.nics[0].Trouble(), HasSubstr("eth0 was removed; the agent starts anew once"));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("NIC eth0: its link is down, the device was removed"));
}

}  // namespace
}  // namespace cw::agent
