// SPDX-License-Identifier: Apache-2.0
// What is asked of the fleet service about hosts that real agents tell of: does one fit a job, is a promise kept.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_service_rig.h"
#include "userspace/lab/fabric_process.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kPromises[] = R"(
[[sla]]
name = "kept"
p99_delay = "10s"
[[sla]]
name = "to the spare"
hosts = ["h[23]"]
to_hosts = ["h1"]
loss = 0.02
)";

class FleetAsksOnFabric : public FleetServiceRig {
 protected:
  void SetUp() override {
    TestbedSpec spec = Spec("fleetasks", 2);
    spec.fabric.link_mbps = spec.fabric.host_link_mbps = 100;
    spec.all_hosts = true;
    rules_ = absl::StrCat(testing::TempDir(), "cw_fleet_asks_rules.toml");
    std::ofstream(rules_) << kPromises;
    Up(spec, FabricFileOf(spec.fabric), absl::StrCat("rules_file = \"", rules_, "\"\n"));
    if (HasFatalFailure()) return;
    ASSERT_TRUE(Eventually([&] { return bed_->AllThere() && SeesAll(); })) << Why();
    ASSERT_NO_FATAL_FAILURE(StartJob());
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
    job.pairs = {{0, 2}, {2, 3}, {3, 0}};
    job.message_bytes = 64 << 10;
    job.duration = absl::Hours(1);
    job.rate = RateConfig::ForLine(10e6);
    job.packet_interval = absl::Milliseconds(4);
    ASSERT_TRUE(emulator_->AddJob(job).ok());
    ASSERT_TRUE(emulator_->Start().ok());
    const auto known = [&] {
      const json reply = Ask({"jobs", "train"});
      return reply.contains("jobs") && reply["jobs"].size() == 1 && reply["jobs"][0]["hosts"].size() == 3;
    };
    ASSERT_TRUE(Eventually(known, absl::Minutes(1))) << Ask({"jobs"}).dump(1) << Why();
  }

  // It ends with 1 for a no, which is an answer.
  json Fit(const std::string& host) const {
    std::vector<std::string> argv = {"sh", "-c", "\"$@\"; [ $? -le 1 ]", "sh"};
    for (const std::string& word : bed_->Cwctl({"--json", "fleet", "fit", host, "train", "--instead-of", "h3"}))
      argv.push_back(word);
    const absl::StatusOr<std::string> text = RunTool(argv);
    if (!text.ok()) return {{"answer", std::string(text.status().message())}, {"checks", json::array()}};
    return json::parse(*text, nullptr, false);
  }
  static std::string Check(const json& fit, const std::string& what) {
    for (const json& check : fit["checks"]) {
      if (check["what"] == what)
        return absl::StrCat(check["answer"].get<std::string>(), ": ", check["text"].get<std::string>());
    }
    return "none";
  }

  // All but the delay, which is the machine's: beside other tests any host's may be twice another's.
  static bool FitsBesidesDelay(const json& fit) {
    return fit["checks"].size() == 7 && std::ranges::all_of(fit["checks"], [](const json& check) {
             return check["answer"] == "yes" || (check["what"] == "delay" && check["answer"] == "no");
           });
  }

  std::string rules_;
  std::unique_ptr<Emulator> emulator_;
};

TEST_F(FleetAsksOnFabric, AHostFitsAJobAndAPromiseIsKeptUntilItsLinkLoses) {
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_TRUE(Eventually([&] { return FitsBesidesDelay(Fit("h1")); }, absl::Minutes(1))) << Fit("h1").dump(1);
  EXPECT_TRUE(TheOne("SLA missed").is_null()) << Findings().dump(1);

  const Fault loses{.kind = Fault::Kind::kShare, .drop_share = 0.2};
  ASSERT_TRUE(testbed_->fabric().SetFault(LinkDirection::LeafToHost(1), loses).ok());
  EXPECT_TRUE(Eventually([&] { return !TheOne("SLA missed").is_null(); }, absl::Minutes(2)))
      << Findings().dump(1) << Why();
  const json missed = TheOne("SLA missed");
  EXPECT_THAT(missed.dump(), HasSubstr("to the spare"));
  EXPECT_TRUE(Eventually([&] { return Fit("h1")["answer"] == "no"; })) << Fit("h1").dump(1);
  EXPECT_THAT(Check(Fit("h1"), "loss"), HasSubstr("no: ")) << Fit("h1").dump(1);
  EXPECT_THAT(Check(Fit("h1"), "place"), HasSubstr("yes: ")) << Fit("h1").dump(1);
}

}  // namespace
}  // namespace cw::lab
