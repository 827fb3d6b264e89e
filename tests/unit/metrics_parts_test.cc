// SPDX-License-Identifier: Apache-2.0
// What is counted for metrics alone: hw_counters, flaps of links, events, the worst few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "metrics_filled.h"
#include "tests/unit/no_descriptors.h"
#include "userspace/metrics/event_tally.h"
#include "userspace/metrics/hw_counters.h"
#include "userspace/metrics/link_flaps.h"
#include "userspace/metrics/worst.h"

namespace cw::metrics {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    char name[] = "/tmp/cw-metrics-XXXXXX";
    root = mkdtemp(name);
  }
  ~Folder() override { std::filesystem::remove_all(root); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + "/" + path).parent_path());
    std::ofstream(root + "/" + path) << text;
  }
  void Device(const std::string& name, const std::vector<std::string>& counters) {
    uint64_t value = 100;
    for (const std::string& counter : counters)
      Write(absl::StrCat("class/infiniband/", name, "/ports/1/hw_counters/", counter), absl::StrCat(value++, "\n"));
  }
  std::string root;
};

TEST_F(Folder, EveryHwCounterOfEveryDriverIsRead) {
  Device("bnxt_re0", BnxtReCounters());
  Device("mlx5_0", Mlx5Counters());
  Device("rxe0", RxeCounters());
  const HwCounters read = ReadHwCounters(root);
  EXPECT_EQ(read.counters.size(), BnxtReCounters().size() + Mlx5Counters().size() + RxeCounters().size() - 3)
      << "all but lifespan, which is a setting";
  EXPECT_EQ(read.left_out, 0u);
  const auto value = [&](const std::string& device, const std::string& name) {
    for (const HwCounter& counter : read.counters) {
      if (counter.device == device && counter.name == name) return static_cast<int64_t>(counter.value);
    }
    return int64_t{-1};
  };
  EXPECT_EQ(value("mlx5_0", "out_of_sequence"), 107);
  EXPECT_EQ(value("rxe0", "sent_pkts"), 115);
  EXPECT_EQ(value("bnxt_re0", "active_qps"), 101);
  EXPECT_EQ(value("mlx5_0", "lifespan"), -1);
}

TEST_F(Folder, WhatCannotBeReadIsLeftOut) {
  EXPECT_TRUE(ReadHwCounters(root).counters.empty()) << "a host without RDMA";
  Device("mlx5_0", {"good"});
  Write("class/infiniband/mlx5_0/ports/1/hw_counters/odd", "N/A\n");
  Write("class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
  EXPECT_EQ(ReadHwCounters(root).counters.size(), 1u);
}

TEST_F(Folder, HundredsOfVirtualFunctionsAreBounded) {
  std::vector<std::string> names;
  for (int i = 0; i < 50; ++i) names.push_back(absl::StrCat("counter", i));
  for (int vf = 0; vf < 100; ++vf) Device(absl::StrCat("mlx5_", vf), names);
  const HwCounters read = ReadHwCounters(root);
  EXPECT_EQ(read.counters.size(), kMaxHwCounters);
  EXPECT_EQ(read.left_out, 5000 - kMaxHwCounters);
}

TEST(HwCounterNames, CountsEndInTotalAndStatesDoNot) {
  EXPECT_EQ(HwMetricName("out_of_sequence"), "out_of_sequence_total");
  EXPECT_EQ(HwMetricName("Odd-Name.x"), "odd_name_x_total");
  EXPECT_EQ(HwMetricName("active_qps"), "active_qps");
  EXPECT_TRUE(IsHwGauge("watermark_qps"));
  EXPECT_FALSE(IsHwGauge("retry_exceeded_err"));
  EXPECT_THAT(HwMetricHelp("rp_cnp_handled"), ::testing::HasSubstr("congestion notifications"));
  EXPECT_THAT(HwMetricHelp("something_new"), ::testing::EndsWith("tells it."));
}

TEST(LinkReading, AsksTheKernelForThisNamespacesDevices) {
  const absl::StatusOr<LinkReading> loopback = ReadLink("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_EQ(loopback->downs, 0u) << "it has no carrier to lose";
  EXPECT_TRUE(absl::IsNotFound(ReadLink("no-such-nic").status()));
}

// "Gone" makes a NIC's carrier lost and moves its flows.
TEST(LinkReading, ADeviceThatCouldNotBeAskedForIsNotGone) {
  const NoDescriptors none;
  ASSERT_TRUE(none.none_left());
  const absl::Status status = ReadLink("lo").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(LinkFlaps, ALossThatWasFollowedByAReturnIsAFlapForAnHour) {
  LinkFlaps flaps;
  const auto now = [&](int64_t at_ns) { return flaps.States(at_ns).at(0).flaps_1h; };
  flaps.Observe(0, "eth0", {.up = true, .downs = 3});
  EXPECT_EQ(now(0), 0u) << "what fell before the first look is of an unknown time";
  flaps.Observe(kMinuteNs, "eth0", {.up = false, .downs = 4});
  EXPECT_EQ(now(kMinuteNs), 0u) << "still down";
  flaps.Observe(2 * kMinuteNs, "eth0", {.up = true, .downs = 4});
  EXPECT_EQ(now(2 * kMinuteNs), 1u);
  flaps.Observe(3 * kMinuteNs, "eth0", {.up = true, .downs = 9});
  EXPECT_EQ(now(3 * kMinuteNs), 6u) << "five between two looks";
  EXPECT_EQ(now(62 * kMinuteNs - 1), 6u);
  EXPECT_EQ(now(62 * kMinuteNs), 5u) << "the first was an hour ago";
  EXPECT_EQ(now(63 * kMinuteNs), 0u);
}

TEST(LinkFlaps, AStateThatIsAheadOfItsCountMakesNoFlap) {
  LinkFlaps flaps;
  flaps.Observe(0, "eth0", {.up = true, .downs = 5});
  flaps.Observe(1, "eth0", {.up = false, .downs = 5});  // its loss is not counted yet
  flaps.Observe(2, "eth0", {.up = true, .downs = 6});
  EXPECT_EQ(flaps.States(2).at(0).flaps_1h, 1u);
  flaps.Observe(3, "eth0", {.up = true, .downs = 0});  // the device was made anew
  flaps.Observe(4, "eth0", {.up = true, .downs = 1});
  EXPECT_EQ(flaps.States(4).at(0).flaps_1h, 2u);
}

TEST_F(Folder, FlapsOutliveARestartOfTheAgentButNotOfTheHost) {
  const std::string file = root + "/" + LinkFlaps::kFile;
  LinkFlaps before;
  before.Observe(0, "eth0", {.up = true, .downs = 0});
  before.Observe(kMinuteNs, "eth0", {.up = true, .downs = 8});
  ASSERT_TRUE(before.Save(file, "boot1").ok());
  LinkFlaps after;
  ASSERT_TRUE(after.Load(file, "boot1").ok());
  after.Observe(5 * kMinuteNs, "eth0", {.up = true, .downs = 9});  // one fell while no agent ran
  EXPECT_EQ(after.States(5 * kMinuteNs).at(0).flaps_1h, 9u);
  EXPECT_TRUE(absl::IsNotFound(LinkFlaps().Load(file, "boot2")));
  EXPECT_TRUE(absl::IsNotFound(LinkFlaps().Load(root + "/none", "boot1")));
  for (const char* damaged : {"", "{", "[]", "{\"boot\":\"boot1\"}", "{\"boot\":\"boot1\",\"links\":{\"eth0\":7}}",
                              "{\"boot\":7,\"links\":{}}"}) {
    Write(LinkFlaps::kFile, damaged);
    EXPECT_TRUE(absl::IsInvalidArgument(LinkFlaps().Load(file, "boot1"))) << damaged;
  }
}

v1::Event EventOf(uint64_t seq, const std::string& type, bool dry = false) {
  v1::Event event;
  event.set_seq(seq);
  event.set_type(type);
  event.set_severity(v1::SEVERITY_NOTICE);
  event.set_dry(dry);
  return event;
}

TEST(EventTally, CountsByKindAndWhatWasLost) {
  EventTally tally;
  EXPECT_EQ(tally.Counts().by_kind.size(), EventTypes().size() * 3)
      << "all kinds from the start, so that none is born late";
  tally.Add({EventOf(1, "path"), EventOf(2, "move", /*dry=*/true), EventOf(3, "a kind of the future")});
  tally.Add({EventOf(7, "path")});
  const EventCounts counts = tally.Counts();
  EXPECT_EQ(counts.by_kind.at({"path", "notice"}), 2u);
  EXPECT_EQ(counts.by_kind.at({"other", "notice"}), 1u);
  EXPECT_EQ(counts.suppressed.at("move"), 1u);
  EXPECT_EQ(counts.suppressed.at("path"), 0u);
  EXPECT_EQ(counts.lost, 3u);
  EXPECT_EQ(tally.last_seq(), 7u);
}

TEST(FlowCounts, GrowAndSurviveRecordsThatAreMadeAnew) {
  FlowCounts sum;
  sum.AddGrowth({}, {.packets = 10, .bytes = 1000, .cnps = 3});
  sum.AddGrowth({.packets = 10, .bytes = 1000, .cnps = 3}, {.packets = 15, .bytes = 1500, .cnps = 3});
  EXPECT_EQ(sum.packets, 15u);
  EXPECT_EQ(sum.bytes, 1500u);
  EXPECT_EQ(sum.cnps, 3u);
  sum.AddGrowth({.packets = 15, .bytes = 1500, .cnps = 3}, {.packets = 2, .bytes = 2000, .cnps = 1});
  EXPECT_EQ(sum.packets, 17u) << "evicted and made anew";
  EXPECT_EQ(sum.bytes, 3500u);
  EXPECT_EQ(sum.cnps, 4u);
}

TEST(Worst, PathsByQueueAndFlowsByRateAndNoMoreThanWanted) {
  v1::PathsReply paths;
  for (int peer = 0; peer < 20; ++peer) {
    v1::Pair& pair = *paths.add_pairs();
    pair.set_peer(absl::StrCat("node", peer));
    v1::Path& path = *pair.add_paths();
    for (const uint32_t seconds : {1, 10}) {
      v1::PathWindow& window = *path.add_windows();
      window.set_seconds(seconds);
      window.mutable_queueing_forward()->set_samples(peer == 19 ? 0 : 5);
      window.mutable_queueing_forward()->set_p99_ns(seconds == 10 ? peer * 1000 : 1e9);
    }
  }
  const std::vector<WorstPath> worst = WorstPaths(paths, 2);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].peer, "node18/") << "19 has no samples";
  EXPECT_DOUBLE_EQ(worst[0].queueing_p99_s, 18e-6);
  EXPECT_EQ(worst[1].peer, "node17/");
  EXPECT_EQ(WorstPaths(paths, 100).size(), 19u);
  EXPECT_TRUE(WorstPaths({}, 5).empty());

  v1::QpsReply qps;
  for (const uint32_t qpn : {1, 2, 3}) {
    v1::Flow& flow = *qps.add_flows();
    flow.set_local_qpn(qpn == 3 ? 0 : qpn);
    flow.set_remote_qpn(qpn + 16);
    flow.set_rate_bps(8.0 * qpn);
    flow.set_received(qpn == 2);
  }
  const std::vector<TopFlow> top = TopFlows(qps, 5);
  ASSERT_EQ(top.size(), 2u) << "not what is received";
  EXPECT_EQ(top[0].qp, "to 0x13");
  EXPECT_EQ(top[0].bytes_per_second, 3);
  EXPECT_LT(top[0].owd_p99_s, 0);
}

}  // namespace
}  // namespace cw::metrics
