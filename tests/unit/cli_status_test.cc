// SPDX-License-Identifier: Apache-2.0
//
// cwctl status, and the modes that it shows.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli_cwctl_rig.h"

namespace cw::cli {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

namespace v1 = ::cwfabric::v1;

TEST_F(Cwctl, StatusTellsModeAndPaths) {
  const RunResult text = Run({"status"});
  EXPECT_THAT(text.out, HasSubstr("agent    0.1.0, instance default on node1, pid 99, up 1.03 h"));
  EXPECT_THAT(text.out, HasSubstr("3 up, 1 dead"));
  const json reply = RunJson({"status"});
  EXPECT_EQ(reply["mode"], "protect");
  EXPECT_EQ(reply["paths"]["dead"], 1);
  EXPECT_EQ(reply["nics"][0]["mtu"], 4500);
  EXPECT_TRUE(reply["prober"].is_null());
}

TEST_F(Cwctl, StatusBeginsWithAVerdict) {
  EXPECT_THAT(Run({"status"}).out, ::testing::StartsWith("verdict  1 path is dead (cwctl links)\n"));
}

TEST_F(Cwctl, CapabilitiesThatAreNotAsTheModeSaysAreShown) {
  EXPECT_THAT(Run({"status"}).out, Not(HasSubstr("\nbut ")));
  agent_.balance_acts = true;
  EXPECT_THAT(Run({"status"}).out, HasSubstr("but      balance acts\n"));
  EXPECT_THAT(Run({"mode"}).out, HasSubstr("balance     act  observe\n"));
  const json allowed = RunJson({"mode"})["allowed"];
  ASSERT_EQ(allowed.size(), 6u);
  EXPECT_EQ(allowed[3]["capability"], "balance");
  EXPECT_EQ(allowed[3]["allow"], "act");
  EXPECT_EQ(allowed[3]["by_mode"], "observe");
}

// What would be taken for the whole host is not sent.
TEST_F(Cwctl, AScopeWithoutANameOrForAnotherVersionsAgentIsRefused) {
  agent_.last_request.clear();
  for (const char* option : {"--nic", "--label"}) EXPECT_EQ(Run({"mode", "optimize", option, ""}).exit_code, 2);
  agent_.version = "0.0.9";
  const auto older = Run({"mode", "optimize", "--nic", "eth2"});
  EXPECT_EQ(older.exit_code, 1);
  EXPECT_THAT(older.err, HasSubstr("the agent is version 0.0.9"));
  EXPECT_EQ(agent_.last_request, "");
}

TEST_F(Cwctl, ModesOfNicsRailsAndJobsAreShownAndSet) {
  EXPECT_THAT(Run({"status"}).out, Not(HasSubstr("scope")));
  v1::ModeScope& nic = agent_.scopes.emplace_back();
  nic.set_nic("eth2");
  nic.set_text("NIC eth2");
  nic.set_mode(v1::MODE_OBSERVE);
  nic.set_by_operator(true);
  nic.set_holds_back(true);
  nic.set_reverts_s(600);
  v1::ModeScope& rails = agent_.scopes.emplace_back();
  rails.set_rail(3);
  rails.set_others(true);
  rails.set_text("every rail but 3");
  rails.set_mode(v1::MODE_PROTECT);
  EXPECT_THAT(Run({"status"}).out,
              HasSubstr("scope    NIC eth2 at most observe, by an operator, reverts in 10.0 min\n"));
  EXPECT_THAT(Run({"mode"}).out, ContainsRegex("NIC eth2 +observe +operator +10.0 min\n"));
  EXPECT_THAT(Run({"mode"}).out, ContainsRegex("every rail but 3 +protect +\\[\\[scope\\]\\]"));
  const json scopes = RunJson({"mode"})["scopes"];
  ASSERT_EQ(scopes.size(), 2u);
  EXPECT_EQ(scopes[0]["nic"], "eth2");
  EXPECT_EQ(scopes[0]["mode"], "observe");
  EXPECT_EQ(scopes[1]["rail"], 3);
  EXPECT_EQ(RunJson({"status"})["scopes"][1]["others"], true);
  EXPECT_EQ(Run({"mode", "observe", "--nic", "eth2", "--for", "10m"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "mode: MODE_OBSERVE for_s: 600 nic: \"eth2\"");
  EXPECT_EQ(Run({"mode", "optimize", "--rail", "0"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "mode: MODE_OPTIMIZE rail: 0");
  EXPECT_EQ(Run({"mode", "protect", "--label", "job-x"}).exit_code, 0);
  EXPECT_EQ(agent_.last_request, "mode: MODE_PROTECT label: \"job-x\"");
  EXPECT_EQ(Run({"mode", "protect", "--label", "job-x", "--nic", "eth2"}).exit_code, 2);
  EXPECT_EQ(Run({"mode", "--nic", "eth2"}).exit_code, 2);
}

TEST_F(Cwctl, TheBreakerIsShownAndReset) {
  EXPECT_THAT(Run({"steer", "breaker", "show"}).out, HasSubstr("armed\n"));
  agent_.breaker_tripped = true;
  EXPECT_THAT(Run({"steer", "breaker", "show"}).out, HasSubstr("tripped: 2 of 3 moves"));
  EXPECT_THAT(Run({"status"}).out, HasSubstr("breaker  tripped, nothing moves for balance: 2 of 3"));
  EXPECT_EQ(RunJson({"steer", "breaker", "show"})["tripped"], true);
  EXPECT_THAT(Run({"steer", "breaker", "reset"}).out, HasSubstr("armed again"));
  EXPECT_FALSE(agent_.breaker_tripped);
}

TEST_F(Cwctl, StatusWarnsWhereProberOrMainLoopAreHeldBack) {
  v1::ProberStatus& prober = agent_.prober.emplace();
  prober.set_budget_pps(10'000);
  prober.set_afforded_pps(10'000);
  prober.set_slowed(1);
  const std::string free = Run({"status"}).out;
  EXPECT_THAT(free, HasSubstr("probes   0/s of at most 10000/s"));
  EXPECT_THAT(free, Not(HasSubstr("probe.cpu_percent")));
  prober.set_afforded_pps(150);
  EXPECT_THAT(Run({"status"}).out, HasSubstr("probes   held at 150/s, so that the prober keeps to its share"));
  prober.set_slowed(5);
  EXPECT_THAT(Run({"status"}).out, HasSubstr("loop     wakes 5 times more seldom, so that the main thread keeps"));
  EXPECT_EQ(RunJson({"status"})["prober"]["slowed"], 5);
}

}  // namespace
}  // namespace cw::cli
