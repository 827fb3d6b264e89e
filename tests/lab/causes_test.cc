// SPDX-License-Identifier: Apache-2.0
// What the agents say of why flows are slow, against what was done to them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <net/if.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/lab/late_packets.h"
#include "tests/lab/tc_program.h"
#include "userspace/lab/netns.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr double kMbps = 100;

// Drops one packet of 50 behind the XDP hook of the calling thread's eth0, as a host does whose buffers are full.
absl::Status DropBehindXdp() {
  return AttachTc("eth0", BPF_TC_INGRESS,
                  OneOf(50, {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = TC_ACT_SHOT}}));
}

class CausesOnFabric : public ::testing::Test {
 protected:
  void Up(int hosts_per_leaf) {
    TestbedSpec spec;
    spec.fabric = {.lab = "causestest",
                   .spines = 4,
                   .hosts_per_leaf = hosts_per_leaf,
                   .link_mbps = kMbps,
                   .host_link_mbps = kMbps,
                   .ecmp_seed = 1};
    spec.mode = "optimize";
    spec.active_interval = absl::Milliseconds(5);
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    auto up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    auto made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = std::move(*made);
  }

  static JobSpec Job(int from, int to) {
    JobSpec job;
    job.name = absl::StrCat("job", from);
    job.pairs = {{from, to}};
    job.message_bytes = 256 << 10;
    job.duration = absl::Hours(1);
    job.path_mtu = 4096;
    job.rate = RateConfig::ForLine(0.9 * kMbps * 1e6);
    return job;
  }

  // The cause of the first flow that `host` sends, as soon as it is told.
  std::string CauseOf(int host, const std::string& wanted, absl::Duration within) {
    std::string cause, text;
    for (const absl::Time end = absl::Now() + within; absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
      absl::StatusOr<v1::QpsReply> reply = testbed->agent(host).Qps({});
      if (!reply.ok() || reply->flows().empty()) continue;
      cause = reply->flows(0).cause();
      text = reply->flows(0).cause_text();
      if (cause == wanted) break;
    }
    std::printf("host %d: %s, %s\n", host, cause.c_str(), text.c_str());
    if (cause != wanted) {
      for (const v1::Event& event : EventsOf(host, "cause")) std::printf("  %s\n", event.ShortDebugString().c_str());
    }
    return cause;
  }

  std::vector<v1::Event> EventsOf(int host, const std::string& type) {
    v1::EventsRequest request;
    request.set_type(type);
    std::vector<v1::Event> events;
    const absl::Status status = testbed->agent(host).Events(request, [&](const v1::Event& event) {
      events.push_back(event);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return events;
  }

  // Puts the only flow that `host` sends onto the spine; it stays there.
  bool PutOn(int host, int spine) {
    const absl::StatusOr<v1::QpsReply> flows = testbed->agent(host).Qps({});
    if (!flows.ok() || flows->flows_size() != 1) return false;
    v1::PathsRequest to;
    to.set_remote(flows->flows(0).peer());
    const absl::StatusOr<v1::PathsReply> paths = testbed->agent(host).Paths(to);
    if (!paths.ok() || paths->pairs_size() != 1) return false;
    for (const v1::Path& path : paths->pairs(0).paths()) {
      if (!path.assignable() || path.hops_size() < 2 || path.hops(1) != absl::StrCat("10.1.", spine, ".0")) continue;
      v1::SteerSetRequest place;
      place.set_flow(flows->flows(0).id());
      place.set_path(path.slot());
      place.set_force(true);
      return testbed->agent(host).SteerSet(place).ok();
    }
    return false;
  }
  // What all hosts say of causes.
  std::string Findings() {
    std::string text;
    for (int host = 0; host < testbed->fabric().hosts(); ++host) {
      for (const v1::Event& event : EventsOf(host, "cause")) {
        absl::StrAppend(&text, "h", host, ": ", event.text(), "\n");
      }
    }
    return text;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Emulator> emulator;
};

TEST_F(CausesOnFabric, ManySendersIntoOneReceiverAreIncastAndNobodyMoves) {
  ASSERT_NO_FATAL_FAILURE(Up(3));
  for (int host = 0; host < 3; ++host) ASSERT_TRUE(emulator->AddJob(Job(host, 3)).ok());
  ASSERT_TRUE(emulator->Start().ok());
  for (int host = 0; host < 3; ++host) EXPECT_EQ(CauseOf(host, "incast", absl::Seconds(30)), "incast");
  int before = 0, after = 0;
  for (int host = 0; host < 3; ++host) before += static_cast<int>(EventsOf(host, "decision").size());
  EXPECT_TRUE(AfterLooks(*testbed, 5));
  for (int host = 0; host < 3; ++host) after += static_cast<int>(EventsOf(host, "decision").size());
  EXPECT_EQ(after, before) << "moves cannot help";
}

// Shown, and no event: nobody waits for it (fleet_findings_lab_test has one that a collective waits for).
TEST_F(CausesOnFabric, AHostThatSendsLessThanItCouldIsASlowSender) {
  ASSERT_NO_FATAL_FAILURE(Up(1));
  JobSpec job = Job(0, 1);
  job.packet_interval = absl::Milliseconds(2);  // some 17 Mbit/s
  ASSERT_TRUE(emulator->AddJob(job).ok());
  ASSERT_TRUE(emulator->Start().ok());
  EXPECT_EQ(CauseOf(0, "slow sender", absl::Seconds(30)), "slow sender");
  EXPECT_TRUE(AfterLooks(*testbed, 5));
  EXPECT_EQ(Findings(), "");
  EXPECT_TRUE(EventsOf(0, "decision").empty());
}

// Its NIC has seen all of them: nobody is sent to look at optics.
TEST_F(CausesOnFabric, WhatTheReceivingHostDropsIsNoGreyLoss) {
  ASSERT_NO_FATAL_FAILURE(Up(1));
  const absl::Status dropping = RunInNetns(testbed->fabric().HostNetns(1), DropBehindXdp);
  ASSERT_TRUE(dropping.ok()) << dropping;
  JobSpec job = Job(0, 1);
  job.packet_interval = absl::Milliseconds(2);
  ASSERT_TRUE(emulator->AddJob(job).ok());
  ASSERT_TRUE(emulator->Start().ok());
  EXPECT_EQ(CauseOf(0, "slow receiver", absl::Seconds(30)), "slow receiver");
  const absl::StatusOr<v1::QpsReply> reply = testbed->agent(0).Qps({});
  ASSERT_TRUE(reply.ok() && reply->flows_size() > 0);
  EXPECT_THAT(reply->flows(0).cause_text(), ::testing::HasSubstr("its host drops packets"));
  EXPECT_THAT(Findings(), ::testing::Not(::testing::HasSubstr("grey loss")));
}

// As behind a switch that sprays packets: all arrive, and the receiver asks for some again all the same.
TEST_F(CausesOnFabric, PacketsThatOvertakeEachOtherAreNoGreyLoss) {
  ASSERT_NO_FATAL_FAILURE(Up(1));
  const auto late = LatePackets::On(testbed->fabric().LeafNetns(1), "host1", 50, absl::Milliseconds(8));
  ASSERT_TRUE(late.ok()) << late.status();
  JobSpec job = Job(0, 1);
  job.packet_interval = absl::Milliseconds(2);
  ASSERT_TRUE(emulator->AddJob(job).ok());
  ASSERT_TRUE(emulator->Start().ok());
  EXPECT_EQ(CauseOf(0, "reordering", absl::Seconds(30)), "reordering");
  EXPECT_THAT(Findings(), ::testing::Not(::testing::HasSubstr("grey loss")));
}

TEST_F(CausesOnFabric, FlowsThatShareALinkContend) {
  ASSERT_NO_FATAL_FAILURE(Up(2));
  ASSERT_TRUE(emulator->AddJob(Job(0, 2)).ok());
  ASSERT_TRUE(emulator->AddJob(Job(1, 3)).ok());
  ASSERT_TRUE(emulator->Start().ok());
  for (int host : {0, 1}) ASSERT_TRUE(Eventually([&] { return PutOn(host, 1); })) << host;
  for (int host : {0, 1}) EXPECT_EQ(CauseOf(host, "fabric contention", absl::Seconds(30)), "fabric contention");
}

// Nothing is slow: nothing is said. The default configuration.
TEST_F(CausesOnFabric, AnIdleAndAWellSpreadFabricGiveNoFinding) {
  ASSERT_NO_FATAL_FAILURE(Up(2));
  EXPECT_TRUE(AfterLooks(*testbed, 10));
  EXPECT_EQ(Findings(), "") << "idle";
  ASSERT_TRUE(emulator->AddJob(Job(0, 2)).ok());
  ASSERT_TRUE(emulator->AddJob(Job(1, 3)).ok());
  ASSERT_TRUE(emulator->Start().ok());
  for (int host : {0, 1}) ASSERT_TRUE(Eventually([&] { return PutOn(host, host); })) << host;
  EXPECT_TRUE(AfterLooks(*testbed, 10));
  EXPECT_EQ(Findings(), "") << "busy";
}

}  // namespace
}  // namespace cw::lab
