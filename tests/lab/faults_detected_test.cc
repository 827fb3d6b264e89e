// SPDX-License-Identifier: Apache-2.0
// Kinds of faults that no other test has, one after the other on one lab: flows leave what is broken, and no kernel
// calls a path dead that is whole, by the counters that programs and agents share. Where a host or an agent is at
// fault, no path dies at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/failover_fault.h"
#include "userspace/lab/failover_verdicts.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/kernel_deaths.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

struct PathFault {
  const char* name;
  CutKind kind;
  double share = 0;
  bool dies = true;  // in a kernel's eyes; a small loss is the agent's finding
};

constexpr PathFault kPathFaults[] = {
    {"half of the packets lost", CutKind::kShare, 0.5, false},
    {"one in a hundred lost", CutKind::kShare, 0.01, false},
    {"one in ten corrupted", CutKind::kCorrupt, 0.1, false},
    {"link down", CutKind::kLinkDown},
    {"acknowledgements lost", CutKind::kReverse},
    {"spine reboots", CutKind::kReboot},
};

class FaultsDetected : public ::testing::Test {
 protected:
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = "faultstest", .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "protect";
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = *std::move(up);
    told_until_ns = testbed->origin_ns();
    absl::StatusOr<std::unique_ptr<KernelDeaths>> started = KernelDeaths::Start(testbed->fabric());
    ASSERT_TRUE(started.ok()) << started.status();
    kernels = *std::move(started);
    ASSERT_NO_FATAL_FAILURE(StartTraffic());
  }

  void StartTraffic() {
    auto made = testbed->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator = *std::move(made);
    JobSpec job;
    job.pairs = {{0, 1}};
    job.qps_per_pair = 8;
    job.message_bytes = 64 << 10;
    job.duration = absl::Hours(1);
    job.packet_interval = absl::Microseconds(500);
    job.path_mtu = 512;
    job.ack_every = 4;
    job.timeout = 18;  // 1.1 s, seven times: no outage here ends a queue pair
    job.rate.reacts = false;
    ASSERT_TRUE(emulator->AddJob(job).ok());
    ASSERT_TRUE(emulator->Start().ok());
    ASSERT_TRUE(Eventually([&] { return Known(0) && AllDeliver(); }));
  }

  // The agent knows all queue pairs and their paths.
  bool Known(int host) {
    const auto reply = testbed->agent(host).Qps({});
    return reply.ok() && reply->flows_size() == 8 &&
           std::all_of(reply->flows().begin(), reply->flows().end(), [](const auto& flow) { return flow.slot() >= 0; });
  }

  // Something of each flow arrives that arrives after now.
  bool AllDeliver() {
    const int64_t since_ns = MonotonicNs();
    return Eventually([&] {
      const Snapshot now = emulator->TakeSnapshot();
      return std::all_of(now.flows.begin(), now.flows.end(), [&](const FlowReport& flow) {
        return emulator->FirstDeliveryAfter(flow.id, since_ns).in_order_ns.has_value();
      });
    });
  }

  // A spine with flows, and those.
  std::pair<int, std::vector<int>> Choose() {
    const Snapshot snapshot = emulator->TakeSnapshot();
    const int64_t recent_ns = MonotonicNs() - 50'000'000;
    std::pair<int, std::vector<int>> chosen{-1, {}};
    for (const FlowReport& flow : snapshot.flows) {
      const int spine = testbed->SpineOf(flow, recent_ns, acknowledgements);
      if (chosen.first < 0) chosen.first = spine;
      if (spine >= 0 && spine == chosen.first) chosen.second.push_back(flow.id);
    }
    return chosen;
  }

  void CollectTold() {
    const int64_t now_ns = MonotonicNs();
    for (Testbed::PathDeath& death : testbed->PathDeaths(told_until_ns)) {
      if (death.at_ns < now_ns) told.push_back(std::move(death));
    }
    told_until_ns = now_ns;
  }

  void ExpectNothingWrong() {
    CollectTold();
    std::vector<Mark> marks;
    EXPECT_EQ(WrongTold(*testbed, told, cuts, marks), 0);
    const absl::StatusOr<KernelVerdicts> verdicts = JudgeKernels(*testbed, *kernels, cuts, marks);
    ASSERT_TRUE(verdicts.ok()) << verdicts.status();
    EXPECT_EQ(verdicts->elsewhere, 0u);
    EXPECT_EQ(verdicts->untraced, 0u);
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead) << "flow " << flow.id;
    if (!HasFailure()) return;
    for (const Mark& mark : marks) std::printf("%.3f s: %s\n", mark.at_s, mark.text.c_str());
    for (const Cut& cut : cuts)
      std::printf("cut %s %.3f to %.3f s\n", cut.link.Name().c_str(),
                  static_cast<double>(cut.time.cut_ns - testbed->origin_ns()) / 1e9,
                  static_cast<double>(cut.time.repaired_ns - testbed->origin_ns()) / 1e9);
  }

  void ExpectFlowsLeave(const PathFault& fault) {
    acknowledgements = fault.kind == CutKind::kReverse;
    std::pair<int, std::vector<int>> chosen;
    ASSERT_TRUE(Eventually([&] {
      chosen = Choose();
      return chosen.first >= 0;
    }));
    const auto& [spine, flows] = chosen;
    const absl::StatusOr<KernelCounts> before = kernels->Counted();
    ASSERT_TRUE(before.ok()) << before.status();
    Fabric& fabric = testbed->fabric();
    const absl::StatusOr<int64_t> began_ns =
        Break(fabric, fault.kind, spine, fault.share, [] { return absl::OkStatus(); });
    ASSERT_TRUE(began_ns.ok()) << began_ns.status();
    EXPECT_TRUE(Eventually([&, spine = spine, &flows = flows] {
      return StillOn(fabric, emulator->TakeSnapshot(), flows, spine, acknowledgements, MonotonicNs()) == 0;
    })) << "of "
        << flows.size() << " flows some stay on spine " << spine;
    EXPECT_TRUE(AllDeliver()) << "before the repair";
    if (fault.dies) {
      EXPECT_TRUE(Eventually([&] { return kernels->Counted()->died > before->died; }));
    }
    const int64_t repaired_ns = MonotonicNs();
    ASSERT_TRUE(Repair(fabric, fault.kind, spine).ok());
    for (const LinkDirection& link : BrokenLinks(fault.kind, spine, fabric.spec().leaves))
      cuts.push_back({link, {*began_ns, repaired_ns}});
    const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
    EXPECT_TRUE(up.ok()) << up;
    ExpectNothingWrong();
  }

  void ExpectGoesOn(int host) {
    const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
    EXPECT_TRUE(up.ok()) << up;
    EXPECT_TRUE(Eventually([&] { return Known(host); }));
    EXPECT_TRUE(AllDeliver());
    ExpectNothingWrong();
    EXPECT_EQ(kernels->Counted()->died, 0u) << "no path was at fault";
  }

  // So long that rounds are missed by the thousand, and flows meet their timers.
  static constexpr absl::Duration kAway = absl::Seconds(1);

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<KernelDeaths> kernels;
  std::unique_ptr<Emulator> emulator;
  std::vector<Cut> cuts;
  std::vector<Testbed::PathDeath> told;
  int64_t told_until_ns = 0;
  bool acknowledgements = false;
};

TEST_F(FaultsDetected, FlowsLeaveABrokenPathAndNoOtherDies) {
  for (const PathFault& fault : kPathFaults) {
    SCOPED_TRACE(fault.name);
    ASSERT_NO_FATAL_FAILURE(ExpectFlowsLeave(fault));
    if (HasFailure()) return;
  }
}

TEST_F(FaultsDetected, NoPathDiesWithAnAgentOrAPeer) {
  for (const int host : {0, 1}) {
    SCOPED_TRACE(testing::Message() << "agent of h" << host << " stopped");
    ASSERT_TRUE(StopAgent(*testbed, host).ok());
    Hold(kAway);
    ASSERT_TRUE(ContinueAgent(*testbed, host).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(host));
  }
  for (const int host : {0, 1}) {
    SCOPED_TRACE(testing::Message() << "agent of h" << host << " killed");
    CollectTold();
    ASSERT_TRUE(KillAgent(*testbed, host).ok());
    Hold(kAway);
    const absl::Status started = testbed->StartAgent(host);
    ASSERT_TRUE(started.ok()) << started;
    ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(host));
  }
  SCOPED_TRACE("the peer restarts");
  CollectTold();
  ASSERT_TRUE(KillAgent(*testbed, 1).ok());
  ASSERT_TRUE(CutPort(testbed->fabric(), 1, true).ok());
  EXPECT_TRUE(Eventually([&] {
    const auto reply = testbed->agent(0).Paths({});
    return reply.ok() && reply->pairs(0).last_reply_ago_s() > absl::ToDoubleSeconds(kAway);
  })) << "told as a peer that is silent";
  ASSERT_TRUE(CutPort(testbed->fabric(), 1, false).ok());
  const absl::Status started = testbed->StartAgent(1);
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_NO_FATAL_FAILURE(ExpectGoesOn(1));
}

}  // namespace
}  // namespace cw::lab
