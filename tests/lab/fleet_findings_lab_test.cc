// SPDX-License-Identifier: Apache-2.0
// What the fleet service finds from the words of real agents, while two things are wrong at once on one fabric: cables
// that were exchanged, a job whose collective waits for a host that sends too little.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/waiting_rank.h"

namespace cw::lab {
namespace {

using nlohmann::json;

constexpr int kSwapOne = 1, kSwapOther = 2;
constexpr double kMbps = 100;

class FleetFindingsOnFabric : public FleetServiceRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleetfind", 2);
    spec.fabric.spines = 3;
    spec.fabric.link_mbps = spec.fabric.host_link_mbps = kMbps;
    spec.fabric.ecmp_seed = 1;
    spec.active_interval = absl::Milliseconds(5);
    spec.all_hosts = true;
    spec.adjust = [](int, config::Config& config) { config.probe.reverify_interval = absl::Seconds(2); };
    Up(spec, FabricFileOf(spec.fabric));
  }

  void StartSlowJob() {
    auto made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    JobSpec job;
    job.name = "train";
    job.pairs = {{1, 3}};
    job.message_bytes = 256 << 10;
    job.duration = absl::Hours(1);
    job.path_mtu = 4096;
    job.rate = RateConfig::ForLine(0.9 * kMbps * 1e6);
    job.packet_interval = absl::Milliseconds(4);
    ASSERT_TRUE(emulator_->AddJob(job).ok());
    ASSERT_TRUE(emulator_->Start().ok());
  }
  void LetItsCollectiveWait() {
    WaitingRankSpec spec{.socket = DescribeAgentHost(testbed_->fabric(), 1).run_dir + "/inproc.sock",
                         .job = "train",
                         .plugin = NCCL_PLUGIN};
    for (const FlowReport& flow : emulator_->TakeSnapshot().flows) spec.qpns.push_back(flow.source_qpn);
    ASSERT_FALSE(spec.qpns.empty());
    auto rank = WaitingRank::Start(spec);
    ASSERT_TRUE(rank.ok()) << rank.status();
    rank_ = *std::move(rank);
  }
  // Its own agent has shown it as slow for so long, at a stretch: a finding would have come.
  bool SlowForSeconds(int seconds) {
    const absl::StatusOr<api::v1::QpsReply> reply = testbed_->agent(1).Qps({});
    const bool slow = reply.ok() && reply->flows_size() > 0 && reply->flows(0).cause() == "slow sender";
    if (!slow) slow_since_ = absl::InfiniteFuture();
    if (slow) slow_since_ = std::min(slow_since_, absl::Now());
    return absl::Now() - slow_since_ >= absl::Seconds(seconds);
  }

  std::unique_ptr<Emulator> emulator_;
  std::unique_ptr<WaitingRank> rank_;
  absl::Time slow_since_ = absl::InfiniteFuture();
};

TEST_F(FleetFindingsOnFabric, SwappedCablesAndASlowSenderAreOneFindingEach) {
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  EXPECT_TRUE(Ask({"topology"})["miswirings"].empty());
  EXPECT_TRUE(Findings().empty()) << Findings().dump(1);
  const std::string before = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());

  ASSERT_TRUE(testbed_->fabric().SetCablesSwapped(1, kSwapOne, kSwapOther, true).ok());
  EXPECT_EQ(testbed_->fabric().SetCablesSwapped(1, kSwapOne, kSwapOther, true).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_NO_FATAL_FAILURE(StartSlowJob());
  EXPECT_TRUE(Eventually([&] { return !TheOne("cables swapped").is_null(); })) << Findings().dump(1) << Why();
  EXPECT_EQ(TheOne("cables swapped").value("scope", ""), "cables at 10.1.1.3, 10.1.2.3") << Findings().dump(1);
  // It sends little all this time, and nobody waits for it: neither finding nor event.
  EXPECT_TRUE(Eventually([&] { return SlowForSeconds(12); })) << Why();
  EXPECT_TRUE(TheOne("slow sender").is_null()) << Findings().dump(1);
  EXPECT_TRUE(bed_->Ask({"events", "--host", "h1", "--type", "cause"})["events"].empty());
  ASSERT_NO_FATAL_FAILURE(LetItsCollectiveWait());
  EXPECT_TRUE(Eventually([&] { return !TheOne("slow sender").is_null(); })) << Findings().dump(1) << Why();
  const json slow = TheOne("slow sender");
  EXPECT_EQ(slow.value("scope", ""), "host h1") << slow.dump(1);
  EXPECT_EQ(slow.value("jobs", json()), json{"train"}) << slow.dump(1);
  for (const json& finding : Ask({"findings", "--all"})["findings"]) {
    EXPECT_THAT(finding["cause"].get<std::string>(), testing::AnyOf("cables swapped", "slow sender"))
        << finding.dump(1);
  }

  // The store has both: as it was meant, and as it is.
  EXPECT_EQ(Ask({"topology"})["miswirings"].size(), 1u);
  EXPECT_TRUE(Ask({"topology", "--at", before})["miswirings"].empty());
  emulator_->Stop();
}

}  // namespace
}  // namespace cw::lab
