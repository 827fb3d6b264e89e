// SPDX-License-Identifier: Apache-2.0
// Maintenance of a spine, as an operator does it: through the fleet service, with real agents and traffic.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/lab/fleet_service_rig.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/fleet/findings/advice.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/host_fault.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kSpine = 1;

class FleetDrainOnFabric : public FleetServiceRig {
 protected:
  // `allowing`: hosts that let the fleet drain. `outside`: those that are in no fleet.
  void UpAllowing(const std::string& lab, std::set<int> allowing, std::set<int> outside = {}) {
    TestbedSpec spec = Spec(lab, 1);
    spec.fabric.spines = 3;
    spec.fabric.link_mbps = 400;
    spec.fabric.ecmp_seed = 1;
    spec.mode = "protect";
    spec.all_hosts = true;
    spec.adjust = [allowing, outside](int host, config::Config& config) {
      if (outside.contains(host)) config.fleet.endpoints.clear();
      if (allowing.contains(host)) config.fleet.allow = {"drain"};
    };
    Up(spec);
  }
  void StartTraffic() {
    auto made = testbed_->NewEmulator(1);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
    ASSERT_TRUE(emulator_->AddJob(SteadyTraffic(absl::Milliseconds(1), 12)).ok());
    ASSERT_TRUE(emulator_->Start().ok());
  }
  // What hosts put on the links to the spine, by the switches' count; probes are none of it.
  uint64_t DataBytes() const {
    const absl::StatusOr<std::vector<FlowCounters>> flows = testbed_->fabric().Flows();
    EXPECT_TRUE(flows.ok()) << flows.status();
    uint64_t bytes = 0;
    for (const FlowCounters& flow : flows.value_or(std::vector<FlowCounters>())) {
      const bool up = flow.link.tier == LinkDirection::Tier::kSpine && flow.link.toward == LinkDirection::Toward::kUp;
      if (up && flow.link.spine == kSpine && !flow.probe) bytes += flow.bytes;
    }
    return bytes;
  }
  json Drains() const { return Ask({"drains"}).value("drains", json::array()); }
  // Of the only drain: "h0 safe h1 safe: safe".
  std::string State() const {
    const json drains = Drains();
    if (drains.size() != 1) return drains.dump(1);
    std::string text;
    for (const json& host : drains[0]["hosts"])
      text += host["host"].get<std::string>() + " " + host["state"].get<std::string>() + " ";
    return text + drains[0]["state"].get<std::string>();
  }
  // Without that of the test's own traffic, which sends little on purpose.
  json PartFindings() const {
    json out = json::array();
    for (const json& finding : Findings()) {
      if (finding["cause"] != "slow sender") out.push_back(finding);
    }
    return out;
  }
  std::string RunAs(const std::string& user, std::vector<std::string> verb) const {
    verb.insert(verb.begin(), "fleet");
    const absl::StatusOr<std::string> text = bed_->Run(verb, user);
    return text.ok() ? "ok" : std::string(text.status().message());
  }

  std::unique_ptr<Emulator> emulator_;
};

TEST_F(FleetDrainOnFabric, ADrainedSpineIsPulledWithoutAnAlarmAndUsedAgainAfterwards) {
  ASSERT_NO_FATAL_FAILURE(UpAllowing("fleetdrain", {0, 1}));
  ASSERT_NO_FATAL_FAILURE(StartTraffic());
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  ASSERT_TRUE(Eventually([&] { return DataBytes() > 0; })) << "nothing to drain";

  const std::vector<std::string> drain = {"drain", "switch",   "spine1",     "--now",    "--for",
                                          "1h",    "--reason", "new optics", "--no-wait"};
  EXPECT_THAT(RunAs("alice", drain), HasSubstr("takes the role steer"));
  EXPECT_NE(RunAs("h0", drain), "ok") << "no host may order anything";
  EXPECT_TRUE(Drains().empty());
  EXPECT_EQ(RunAs("root0", drain), "ok");
  EXPECT_THAT(RunAs("root0", drain), HasSubstr("drained already, by root0"));
  const absl::Time drained_at = absl::Now();
  EXPECT_TRUE(Eventually([&] { return State() == "h0 safe h1 safe safe"; }, absl::Minutes(2))) << State() << Why();
  std::printf("all hosts said that it is safe %.1f s after the order\n",
              absl::ToDoubleSeconds(absl::Now() - drained_at));
  const uint64_t before = DataBytes();

  // Neither a new service nor a new agent forgets it.
  ASSERT_TRUE(bed_->Kill().ok());
  ASSERT_TRUE(bed_->Start(testbed_->fabric()).ok());
  ASSERT_TRUE(EndAgent(*testbed_, 0, SIGKILL).ok());
  ASSERT_TRUE(testbed_->StartAgent(0).ok());
  EXPECT_TRUE(Eventually([&] { return State() == "h0 safe h1 safe safe"; }, absl::Minutes(2))) << State() << Why();
  EXPECT_EQ(DataBytes(), before) << "bytes of data over the drained spine, by the switches' own count";

  for (int leaf = 0; leaf < 2; ++leaf) EXPECT_TRUE(SetCable(leaf, kSpine, Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] { return TheOne("switch dead").is_object(); }, absl::Minutes(2)))
      << Findings().dump(1) << Why();
  const auto unmuted = [&] {
    const json findings = PartFindings();
    return std::any_of(findings.begin(), findings.end(), [](const json& f) { return f.value("muted_by", "") == ""; });
  };
  EXPECT_FALSE(Eventually(unmuted, absl::Seconds(5))) << Findings().dump(1);
  EXPECT_EQ(TheOne("switch dead").value("muted_by", ""), "the drain of switch spine1 by root0 (new optics)");

  for (int leaf = 0; leaf < 2; ++leaf) EXPECT_TRUE(SetCable(leaf, kSpine, Fault::None()).ok());
  EXPECT_TRUE(Eventually([&] { return PartFindings().empty(); }, absl::Minutes(2))) << Findings().dump(1) << Why();
  EXPECT_EQ(DataBytes(), before);
  EXPECT_EQ(RunAs("root0", {"undrain", "spine1"}), "ok");
  EXPECT_TRUE(Eventually([&] { return DataBytes() > before; }, absl::Minutes(1))) << "its paths are used again";
  EXPECT_TRUE(Drains().empty());
  for (int host = 0; host < 2; ++host) {
    EXPECT_TRUE(Eventually([&] {
      return testbed_->agent(host).Drains().value_or(api::v1::DrainsReply()).drains_size() == 0;
    })) << host;
  }
  emulator_->Stop();
}

// It says who stands in the way instead of calling it safe.
TEST_F(FleetDrainOnFabric, AHostThatDoesNotAllowItKeepsItFromBeingSafe) {
  ASSERT_NO_FATAL_FAILURE(UpAllowing("fleetdrain2", {0}));
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  const std::string waited = RunAs("root0", {"drain", "switch", "spine1"});
  EXPECT_NE(waited, "ok") << "it waits no longer than it has to, and fails";
  EXPECT_EQ(State(), "h0 safe h1 not allowed refused") << Drains().dump(1) << Why();
  EXPECT_EQ(testbed_->agent(0).Drains().value_or(api::v1::DrainsReply()).drains_size(), 1)
      << "the port where its packets come in";
  EXPECT_EQ(testbed_->agent(1).Drains().value_or(api::v1::DrainsReply()).drains_size(), 0);
  EXPECT_EQ(RunAs("root0", {"undrain", "--all"}), "ok");
  EXPECT_TRUE(
      Eventually([&] { return testbed_->agent(0).Drains().value_or(api::v1::DrainsReply()).drains_size() == 0; }));
}

// The commands within a sentence, as people paste them.
std::set<std::string> CommandsOf(const std::string& advice) {
  std::set<std::string> commands;
  for (size_t at = advice.find("cwctl "); at != std::string::npos; at = advice.find("cwctl ", at + 1)) {
    size_t end = advice.size() - (advice.ends_with('.') ? 1 : 0);
    for (const char* stop : {". ", ", ", "; "}) end = std::min(end, advice.find(stop, at));
    commands.insert(advice.substr(at, end - at));
  }
  return commands;
}

// Of all causes, with every kind of scope that there is here.
std::set<std::string> AllAdvice(const json& topology) {
  const auto port = [&](const std::string& from, const std::string& to) {
    for (const json& link : topology["links"]) {
      if (link["from"] == from && link["to"] == to) return link["port"].get<std::string>();
    }
    return std::string("none");
  };
  std::string leaf;
  for (const json& s : topology["switches"]) {
    if (s["tier"] == 1) leaf = s["name"].get<std::string>();
  }
  const std::vector<std::string> scopes = {absl::StrCat("link ", port("spine1", leaf), ">", port(leaf, "spine1")),
                                           absl::StrCat("cable ", leaf, " = spine1"), "switch spine1", "host h1"};
  std::set<std::string> commands;
  for (int cause = 1; cause <= fleet::kFleetCauses; ++cause) {
    for (const std::string& scope : scopes)
      commands.merge(CommandsOf(fleet::AdviceOf({.cause = static_cast<fleet::Cause>(cause), .scope = scope}, "")));
  }
  return commands;
}

TEST_F(FleetDrainOnFabric, EachCommandThatAFindingAdvisesWorksAsItIsPasted) {
  ASSERT_NO_FATAL_FAILURE(UpAllowing("fleetadvice", {0, 1}));
  ASSERT_TRUE(Eventually([&] { return SeesAll(); })) << Ask({"topology"}).dump(1) << Why();
  const std::set<std::string> commands = AllAdvice(Ask({"topology"}));
  EXPECT_GE(commands.size(), 12u);
  const std::string socket = DescribeAgentHost(testbed_->fabric(), 1).run_dir + "/agent.sock";
  const std::string fleet = absl::StrJoin(bed_->Cwctl({}, "root0"), " "), host = CWCTL_BINARY " --socket " + socket;
  for (const std::string& command : commands) {
    const bool drains = command.starts_with("cwctl fleet drain ");
    const std::string& program = command.starts_with("cwctl fleet ") ? fleet : host;
    const std::string line = absl::StrCat(program, command.substr(5), drains ? " --no-wait" : "", " >/dev/null");
    const int code = std::system(line.c_str());
    // What doctor finds is its own matter.
    EXPECT_TRUE(WIFEXITED(code) && WEXITSTATUS(code) <= (command == "cwctl doctor" ? 1 : 0)) << command;
    if (drains) {
      EXPECT_EQ(RunAs("root0", {"undrain", "--all"}), "ok");
    }
  }
}

// What it sends over the spine nobody asks.
TEST_F(FleetDrainOnFabric, APeerOutsideTheFleetKeepsItFromBeingSafe) {
  ASSERT_NO_FATAL_FAILURE(UpAllowing("fleetdrain3", {0}, {1}));
  const auto known = [&] { return RunAs("root0", {"drain", "switch", "spine1", "--no-wait"}) == "ok"; };
  ASSERT_TRUE(Eventually(known, absl::Minutes(1))) << Ask({"topology"}).dump(1) << Why();
  const auto named = [&] { return State() == "h0 safe 10.0.1.10 not connected refused"; };
  EXPECT_TRUE(Eventually(named, absl::Minutes(1))) << Drains().dump(1) << Why();
  EXPECT_THAT(Drains().dump(), HasSubstr("a peer of h0 and no host of the fleet"));
}

}  // namespace
}  // namespace cw::lab
