// SPDX-License-Identifier: Apache-2.0
// A real chronyd slews a machine's clock towards a server in another machine, as fast as it is let: fleet time there
// goes on as CLOCK_MONOTONIC_RAW does, which nobody slews, and does not jump. The agent has no peers, so that nothing
// but the slew could bend its line; that peers do not see the slew either is cw_vm_clock_slew_test's to show.
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents.h"
#include "tests/vm/rack.h"

namespace cw::vm {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(6);
constexpr double kMostPpm = 1000;  // chronyd's maxslewrate
constexpr char kServer[] = "local stratum 1\nallow\ncmdport 0\nbindcmdaddress /\npidfile /run/ntp/pid\n";

std::string Client() {
  return absl::StrCat("server ", Rack::MgmtAddress(1), " iburst minpoll -2 maxpoll -2\nmaxslewrate ", kMostPpm,
                      "\ncmdport 0\nbindcmdaddress /run/ntp/sock\npidfile /run/ntp/pid\n");
}

std::string Program(const char* name) {
  for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/sbin/"}) {
    if (access(absl::StrCat(folder, name).c_str(), X_OK) == 0) return absl::StrCat(folder, name);
  }
  return "";
}

class ChronydSlewTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string chronyd = Program("chronyd"), chronyc = Program("chronyc");
    if (chronyd.empty() || chronyc.empty()) GTEST_SKIP() << "chrony is not installed";
    RackOptions options;
    options.lab = "vmntp";
    options.spines = 1;
    options.log_dir = CW_VM_LOG_DIR "/chronyd";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.emplace_back(CW_CLOCK_WATCH, "/usr/bin/cw_vm_clock_watch");
    options.image.files.emplace_back(chronyd, "/usr/bin/chronyd");
    options.image.files.emplace_back(chronyc, "/usr/bin/chronyc");
    auto rack = Rack::Up(options);
    if (absl::IsUnavailable(rack.status())) GTEST_SKIP() << rack.status().message();
    ASSERT_TRUE(rack.ok()) << rack.status();
    rack_ = *std::move(rack);
    config::Config config = AgentConfig();
    config.peers.clear();
    auto agents = Agents::Start(*rack_, config);
    ASSERT_TRUE(agents.ok()) << agents.status();
    agents_ = *std::move(agents);
    ASSERT_TRUE(Eventually([&] { return Tracking().value("state", "") == "synchronised"; }))
        << Tracking().dump() << agents_->agent(0).output();
  }

  nlohmann::json Tracking() {
    auto reply = agents_->Ctl(0, "clock tracking");
    return reply.ok() ? *reply : nlohmann::json();
  }

  bool Eventually(const std::function<bool()>& done) {
    for (absl::Time end = absl::Now() + absl::Seconds(60); absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
      if (done()) return true;
    }
    return false;
  }

  std::unique_ptr<Command> Chronyd(int machine, const std::string& config) {
    EXPECT_TRUE(rack_->machine(machine).Put(config, "/run/ntp/conf").ok());
    auto chronyd = rack_->machine(machine).Start("chmod 700 /run/ntp && exec chronyd -d -u root -f /run/ntp/conf");
    EXPECT_TRUE(chronyd.ok()) << chronyd.status();
    return chronyd.ok() ? *std::move(chronyd) : nullptr;
  }

  // What cw_vm_clock_watch saw in machine 0.
  nlohmann::json Watch(const char* what) {
    auto watch = rack_->machine(0).Exec(absl::StrCat("cw_vm_clock_watch ", absl::ToInt64Seconds(kPeriod)),
                                        kPeriod + absl::Seconds(30));
    EXPECT_TRUE(watch.ok() && watch->exit_code == 0) << watch.status() << (watch.ok() ? watch->output : "");
    if (!watch.ok()) return {};
    std::printf("%s: agent says %.3f ppm; %s", what, Tracking().value("slew_ppb", 0.0) / 1000, watch->output.c_str());
    return nlohmann::json::parse(watch->output, nullptr, /*allow_exceptions=*/false);
  }

  std::unique_ptr<Rack> rack_;
  std::unique_ptr<Agents> agents_;
};

TEST_F(ChronydSlewTest, FleetTimeStaysWithTheCrystal) {
  const nlohmann::json quiet = Watch("quiet");
  ASSERT_TRUE(quiet.contains("fleet_ppb"));
  auto server = Chronyd(1, kServer);
  // By one to two seconds, which takes chronyd half an hour. A step of the date alone does not touch CLOCK_MONOTONIC.
  auto set = rack_->machine(0).Run("date -s @$(($(date +%s) - 1))");
  ASSERT_TRUE(set.ok()) << set.status();
  auto client = Chronyd(0, Client());
  ASSERT_TRUE(Eventually([&] { return std::abs(Tracking().value("slew_ppb", 0.0)) > 0.5e3 * kMostPpm; }))
      << "chronyd does not slew: " << client->output() << Tracking().dump();
  const std::string epoch = Tracking().at("epoch").dump();
  const nlohmann::json slewed = Watch("chronyd slews");
  ASSERT_TRUE(slewed.contains("fleet_ppb")) << client->output();
  EXPECT_GT(std::abs(slewed.at("mono_ppb").get<double>()), 0.3e6) << "chronyd did not slew: " << client->output();
  EXPECT_LT(std::abs(slewed.at("fleet_ppb").get<double>()), 2000) << "fleet time goes with the slew";
  EXPECT_LE(slewed.at("step_ns").get<double>(), 10'000 + 3 * quiet.at("step_ns").get<double>());
  EXPECT_EQ(Tracking().at("epoch").dump(), epoch) << "an epoch for a slew";
}

}  // namespace
}  // namespace cw::vm
