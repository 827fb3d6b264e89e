// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/carriers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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
    reading_ = metrics::LinkReading{.up = up, .downs = downs};
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
  absl::StatusOr<metrics::LinkReading> reading_ = metrics::LinkReading{.up = true, .downs = 5};
  absl::StatusOr<uint32_t> ifindex_ = OnePair::kIfindex;
  bool there_ = true, helped_ = false;
  int changed_ = 0;
  std::vector<telemetry::Event> ends_;
  Carriers carriers_{host_.nics,
                     links_,
                     clock_,
                     clock_,
                     host_.events,
                     {.read = [this](const std::string&) { return reading_; },
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

}  // namespace
}  // namespace cw::agent
