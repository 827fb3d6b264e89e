// SPDX-License-Identifier: Apache-2.0
// What the fleet service finds where nothing is dead: a class that flow control holds up, a host whose clock cannot be
// followed. And what agents that may act did about a spine that died.
#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "userspace/lab/pause_gate.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kSoon[] = "[thresholds]\nclock_off = \"10s\"\n";
constexpr int kWild = 3;  // this host's clock

class FleetCausesOnFabric : public FleetServiceRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleetcauses", 2);
    spec.mode = "protect";
    spec.fabric.link_mbps = spec.fabric.host_link_mbps = 100;
    spec.fabric.ecmp_seed = 1;
    spec.all_hosts = true;
    // No crystal is so wrong: no neighbour follows it, and it follows none.
    spec.clocks.resize(4);
    spec.clocks[kWild] = {.drift_ppm = 5000, .segment_s = 1000};
    rules_ = absl::StrCat(testing::TempDir(), "cw_fleet_causes_rules.toml");
    std::ofstream(rules_) << kSoon;
    Up(spec, FabricFileOf(spec.fabric), absl::StrCat("rules_file = \"", rules_, "\"\n"));
    if (HasFatalFailure()) return;
    ASSERT_TRUE(Eventually([&] { return bed_->AllThere() && SeesAll(); })) << Why();
  }
  void TearDown() override {
    if (emulator_ != nullptr) emulator_->Stop();
    std::filesystem::remove(rules_);
  }

  void StartJob() {
    auto made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    JobSpec job;
    job.name = "train";
    job.pairs = {{0, 2}, {0, 3}, {1, 2}, {1, 3}};
    job.qps_per_pair = 4;
    job.message_bytes = 64 << 10;
    job.duration = absl::Hours(1);
    job.rate = RateConfig::ForLine(10e6);
    job.packet_interval = absl::Milliseconds(4);
    ASSERT_TRUE(emulator_->AddJob(job).ok());
    ASSERT_TRUE(emulator_->Start().ok());
    ASSERT_TRUE(Eventually([&] { return bed_->Ask({"qps", "--host", "h0"})["flows"].size() == 8; })) << Why();
  }

  std::string ScopeOf(const std::string& cause) const {
    const json one = TheOne(cause);
    return one.is_null() ? "none" : one["scope"].get<std::string>();
  }

  std::string rules_;
  std::unique_ptr<Emulator> emulator_;
};

TEST_F(FleetCausesOnFabric, AWildClockAClassThatIsHeldUpAndWhatAgentsDidAboutADeadSpine) {
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_TRUE(Eventually([&] { return !TheOne("clock").is_null(); }, absl::Minutes(2))) << Findings().dump(1) << Why();
  EXPECT_EQ(ScopeOf("clock"), absl::StrCat("host h", kWild));
  const auto clock_of = [&](int host) {
    const json reply = bed_->Ask({"clock", "tracking", "--host", absl::StrCat("h", host)});
    return reply.contains("hosts") ? reply["hosts"][0]["clock"] : json();
  };
  // It follows nobody, so that there is no bound, or it is far from the others.
  EXPECT_TRUE(Eventually([&] {
    const json wild = clock_of(kWild), right = clock_of(0);
    if (wild.is_null() || right.is_null() || right["bound_ns"].is_null()) return false;
    return !wild["synced"].get<bool>() ? wild["bound_ns"].is_null()
                                       : wild["bound_ns"].get<double>() > 10 * right["bound_ns"].get<double>();
  })) << clock_of(kWild).dump(1)
      << clock_of(0).dump(1);
  // Its events are kept, each once, whatever it takes for the time.
  Act(kWild, 6);
  EXPECT_TRUE(Eventually([&] { return SameEvents(kWild); }, absl::Minutes(1))) << Why();

  // Probes follow the class of the flows between two NICs.
  ASSERT_NO_FATAL_FAILURE(StartJob());
  {
    auto gate = PauseGate::Open(testbed_->fabric(), LinkDirection::SpineToLeaf(1, 1));
    ASSERT_TRUE(gate.ok()) << gate.status();
    ASSERT_TRUE((*gate)->Pause().ok());
    EXPECT_TRUE(Eventually([&] { return !TheOne("class paused").is_null(); })) << Findings().dump(1) << Why();
    EXPECT_THAT(ScopeOf("class paused"), HasSubstr("10.1.1.")) << Findings().dump(1);
    ASSERT_TRUE((*gate)->Resume().ok());
  }
  EXPECT_TRUE(Eventually([&] { return TheOne("class paused").is_null(); })) << Findings().dump(1);

  const json why = bed_->Ask({"why", "h2", "--host", "h0"});
  EXPECT_EQ(why["flows"].size(), 4u) << why.dump(1);
  EXPECT_FALSE(bed_->Ask({"owd", "--host", "h0"})["paths"].empty());
  for (int leaf : {0, 1}) ASSERT_TRUE(SetCable(leaf, 0, {.kind = Fault::Kind::kDrop}).ok());
  EXPECT_TRUE(Eventually([&] { return !TheOne("switch dead").is_null(); })) << Findings().dump(1) << Why();
  const auto done = [&] { return TheOne("switch dead")["did"].dump(); };
  EXPECT_TRUE(Eventually([&] { return done().find("left it") != std::string::npos; })) << Findings().dump(1) << Why();
}

}  // namespace
}  // namespace cw::lab
