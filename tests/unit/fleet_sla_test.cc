// SPDX-License-Identifier: Apache-2.0
// What groups of hosts were promised, against what they tell.
#include "userspace/fleet/sla/sla.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kBaseNs = 4000;

// Four hosts of two racks; each tells of one path to each other.
class SlaTest : public ::testing::Test {
 protected:
  SlaTest() {
    for (int h = 0; h < 4; ++h) {
      LiveHost& host = hosts_.emplace_back();
      host.host = absl::StrCat("h", h);
      host.run = 1;
      host.connected = true;
      host.last_seen = now_;
      host.newest_ns = absl::ToUnixNanos(now_);
      host.nics = {{"eth0", Nic(h)}};
      for (int to = 0; to < 4; ++to) {
        if (to == h) continue;
        PathSample& sample = host.paths[{.local = Nic(h), .remote = Nic(to), .udp_port = 5}];
        sample.time_ns = host.newest_ns;
        sample.base_ns = kBaseNs;
        sample.sent = 1000;
        sample.queue.Add(500, 1000);
      }
    }
  }
  static Addr Nic(int host) { return Addr::FromV4(0x0a000001 + static_cast<uint32_t>(host)); }
  PathSample& Path(int from, int to) {
    LiveHost& host = hosts_[static_cast<size_t>(from)];
    ++host.batches;
    return host.paths[{.local = Nic(from), .remote = Nic(to), .udp_port = 5}];
  }
  SlaWord Judge(SlaRule rule) {
    rule.name = "test";
    SlaWatch watch({std::move(rule)});
    for (const LiveHost& host : hosts_) watch.Take(host);
    return watch.Look(now_, racks_)[0];
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::vector<LiveHost> hosts_;
  const std::map<std::string, std::string> racks_ = {{"h0", "A"}, {"h1", "A"}, {"h2", "B"}, {"h3", "B"}};
};

TEST_F(SlaTest, IsKeptAndKnownWhereDelaysAreBelow) {
  const SlaWord word = Judge({.from = {.hosts = {"h*"}}, .p99_delay = absl::Microseconds(8)});
  EXPECT_TRUE(word.delay_known);
  EXPECT_FALSE(word.loss_known);
  EXPECT_FALSE(word.missed);
  EXPECT_NEAR(word.p99_ns, 4500, 200);
  EXPECT_EQ(word.paths, 12u);
  EXPECT_EQ(word.hosts, 4u);
  EXPECT_THAT(word.evidence, IsEmpty());
}

TEST_F(SlaTest, TheNinetyNinthPercentileIsOverAllProbesOfTheGroup) {
  Path(0, 1).queue.Add(96'000, 100);  // 100 of 12,100
  EXPECT_FALSE(Judge({.p99_delay = absl::Microseconds(8)}).missed) << "0.8 % of the fleet's probes";
  const SlaWord rack = Judge({.from = {.racks = {"A"}}, .p99_delay = absl::Microseconds(8)});
  EXPECT_TRUE(rack.missed) << "4.8 % of the rack's";
  EXPECT_NEAR(rack.p99_ns, 100'000, 4500);
  EXPECT_THAT(rack.affected, ElementsAre("h0"));
  ASSERT_EQ(rack.evidence.size(), 2u);
  EXPECT_THAT(rack.evidence[0], HasSubstr("promised are 8.0 us, over 2 paths of 2 hosts"));
  EXPECT_THAT(rack.evidence[1], HasSubstr("h0 to h1: p99 "));
  EXPECT_FALSE(Judge({.from = {.racks = {"B"}}, .p99_delay = absl::Microseconds(8)}).missed);
  EXPECT_FALSE(Judge({.from = {.hosts = {"h1"}}, .to = {.racks = {"A"}}, .p99_delay = absl::Microseconds(8)}).missed)
      << "the other direction";
  EXPECT_TRUE(
      Judge({.from = {.hosts = {"h0"}}, .to = {.hosts = {"h[1-3]"}}, .p99_delay = absl::Microseconds(8)}).missed);
}

TEST_F(SlaTest, LossIsPromisedByItself) {
  Path(2, 3).lost = 10;
  const SlaWord word = Judge({.from = {.racks = {"B"}}, .loss = 0.001});
  EXPECT_TRUE(word.missed);
  EXPECT_NEAR(word.loss, 0.005, 1e-9);
  EXPECT_THAT(word.evidence[0], HasSubstr("0.500 % of probes are lost, promised are 0.100 %"));
  EXPECT_FALSE(Judge({.from = {.racks = {"B"}}, .loss = 0.01}).missed);
  EXPECT_FALSE(Judge({.from = {.racks = {"B"}}, .p99_delay = absl::Microseconds(8)}).missed);
}

TEST_F(SlaTest, WhatIsNotHeardIsNoMiss) {
  Path(0, 1).queue.Add(96'000, 1000);
  const SlaRule rack{.from = {.racks = {"A"}}, .p99_delay = absl::Microseconds(8)};
  EXPECT_TRUE(Judge(rack).missed);
  hosts_[0].connected = false;
  EXPECT_FALSE(Judge(rack).missed);
  hosts_[0].connected = true;
  hosts_[0].last_seen = now_ - absl::Minutes(1);
  EXPECT_FALSE(Judge(rack).missed);
  hosts_[0].last_seen = now_;
  hosts_[0].newest_ns -= 60'000'000'000;  // a spool is emptied
  EXPECT_FALSE(Judge(rack).missed);
  hosts_[0].newest_ns += 60'000'000'000;
  Path(0, 1).time_ns -= 60'000'000'000;
  EXPECT_FALSE(Judge(rack).missed);
  EXPECT_FALSE(Judge({.from = {.hosts = {"nobody"}}, .p99_delay = absl::Microseconds(1)}).delay_known);
  Path(1, 0).queue = {};
  EXPECT_FALSE(Judge(rack).delay_known) << "no answered probe";
}

TEST_F(SlaTest, NobodyOutvotesTheOthersByNumbersThatHeMakesUp) {
  const SlaRule all{.loss = 0.01};
  PathSample& path = Path(0, 1);
  path.sent = 4'000'000'000;
  path.lost = path.sent;
  EXPECT_NEAR(Judge(all).loss, 4.0 / 15, 1e-3) << "as four paths of fifteen";
  path.lost = 0;
  for (int host : {1, 2, 3}) Path(host, 0).lost = 500;
  EXPECT_TRUE(Judge(all).missed) << "it hides no loss";
  path.base_ns = UINT64_MAX;
  EXPECT_FALSE(Judge({.p99_delay = absl::Microseconds(8)}).missed);
}

TEST_F(SlaTest, TheNewestWordCounts) {
  SlaWatch watch({{.name = "all", .p99_delay = absl::Microseconds(8)}});
  const auto look = [&] {
    for (const LiveHost& host : hosts_) watch.Take(host);
    return watch.Look(now_, {})[0].missed;
  };
  EXPECT_FALSE(look());
  Path(0, 1).queue.Add(96'000, 1000);
  EXPECT_TRUE(look());
  Path(0, 1).queue = {};
  EXPECT_FALSE(look());
  watch.Forget("h0");
  EXPECT_EQ(watch.Look(now_, {})[0].hosts, 3u);
}

}  // namespace
}  // namespace cw::fleet
