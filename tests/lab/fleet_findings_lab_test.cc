// SPDX-License-Identifier: Apache-2.0
// What the fleet service finds from the words of real agents, while two things are wrong at once on one fabric: cables
// that were exchanged, a job that sends too little.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"

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

  std::unique_ptr<Emulator> emulator_;
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
