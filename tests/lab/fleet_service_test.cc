// SPDX-License-Identifier: Apache-2.0
// Real agents on the lab's fabric, and a real cwfleetd that they tell what they see: it is there, and what happens
// while the service is gone comes later, whole and once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/testbed.h"
#include "userspace/tls/authority.h"

namespace cw::lab {
namespace {

namespace fs = std::filesystem;
namespace v1 = api::v1;
using nlohmann::json;

constexpr int kPort = 9480;

void WriteSecretly(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
}

class FleetServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cw_fleet_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    MakeCertificates();
    TestbedSpec spec;
    spec.fabric = {.lab = "fleetsvc", .leaves = 2, .spines = 2, .hosts_per_leaf = 1};
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    spec.mode = "observe";
    spec.adjust = [this](int host, config::Config& config) {
      config.fleet.endpoints = {absl::StrCat("192.168.77.10:", kPort)};
      config.fleet.tls_cert = absl::StrFormat("%s/h%d.crt", folder_, host);
      config.fleet.tls_key = absl::StrFormat("%s/h%d.key", folder_, host);
      config.fleet.tls_ca = folder_ + "/ca.crt";
    };
    absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
    ASSERT_TRUE(testbed.ok()) << testbed.status();
    testbed_ = *std::move(testbed);
    std::ofstream(folder_ + "/cwfleetd.toml")
        << "tls_cert = \"" << folder_ << "/fleet.crt\"\ntls_key = \"" << folder_ << "/fleet.key\"\ntls_ca = \""
        << folder_ << "/ca.crt\"\nstore = \"" << folder_ << "/fleet.db\"\nfabric_file = \"" << folder_
        << "/fabric.toml\"\n[alerts]\nalertmanager = [\"http://127.0.0.1:9093\"]\n";
    // Between two leaves alone traces cannot tell that a spine's two ports are one switch's.
    std::ofstream fabric(folder_ + "/fabric.toml");
    for (int spine = 0; spine < 2; ++spine) {
      fabric << absl::StrFormat("[[switch]]\nname = \"spine%d\"\naddresses = [\"10.1.%d.0\", \"10.1.%d.2\"]\n", spine,
                                spine, spine);
    }
    fabric.close();
    StartFleet();
  }
  ~FleetServiceTest() override {
    if (fleet_.pid != 0) EndProcess(fleet_).IgnoreError();
    if (alertmanager_.pid != 0) EndProcess(alertmanager_).IgnoreError();
    testbed_.reset();
    if (!HasFailure()) fs::remove_all(folder_);
  }

  void MakeCertificates() {
    const tls::Life life{absl::Now(), 10};
    const tls::Issued authority = *tls::MakeAuthority("lab", life);
    WriteSecretly(folder_ + "/ca.crt", authority.certificate);
    const auto write = [&](const std::string& name, const tls::Issued& issued) {
      WriteSecretly(absl::StrCat(folder_, "/", name, ".crt"), issued.certificate);
      WriteSecretly(absl::StrCat(folder_, "/", name, ".key"), issued.key);
    };
    for (int host = 0; host < 2; ++host)
      write(absl::StrCat("h", host), *tls::MakeHost(authority, absl::StrCat("h", host), {}, life));
    write("fleet", *tls::MakeHost(authority, "fleet", {"192.168.77.10", "127.0.0.1"}, life));
    write("alice", *tls::MakeUser(authority, "alice", "read", life));
  }

  // On host 0, which the others reach by the management network.
  std::vector<std::string> OnHost0(std::vector<std::string> argv) const {
    argv.insert(argv.begin(), {"nsenter", "--net=" + testbed_->fabric().HostNetns(0)});
    return argv;
  }
  void StartFleet() {
    const absl::StatusOr<ProcessId> fleet =
        StartProcess(OnHost0({CWFLEETD_BINARY, "--config", folder_ + "/cwfleetd.toml"}), folder_ + "/log");
    ASSERT_TRUE(fleet.ok()) << fleet.status();
    fleet_ = *fleet;
  }
  // The real one; beside the service.
  void StartAlertmanager() {
    std::ofstream(folder_ + "/alertmanager.yml") << "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n";
    const absl::StatusOr<ProcessId> started =
        StartProcess(OnHost0({"prometheus-alertmanager", "--config.file=" + folder_ + "/alertmanager.yml",
                              "--storage.path=" + folder_ + "/alerts", "--web.listen-address=127.0.0.1:9093",
                              "--cluster.listen-address="}),
                     folder_ + "/alertmanager.log");
    ASSERT_TRUE(started.ok()) << started.status();
    alertmanager_ = *started;
    ASSERT_TRUE(Eventually([&] { return Alerts().is_array(); }));
  }
  json Alerts() const {
    const absl::StatusOr<std::string> text =
        RunTool(OnHost0({"amtool", "--alertmanager.url=http://127.0.0.1:9093", "alert", "query", "-o", "json"}));
    return text.ok() ? json::parse(*text, nullptr, false) : json{};
  }
  json Ask(std::vector<std::string> verb) const {
    std::vector<std::string> argv = {CWCTL_BINARY,
                                     "--fleet",
                                     absl::StrCat("127.0.0.1:", kPort),
                                     "--cert",
                                     folder_ + "/alice.crt",
                                     "--key",
                                     folder_ + "/alice.key",
                                     "--ca",
                                     folder_ + "/ca.crt",
                                     "--json",
                                     "fleet"};
    argv.insert(argv.end(), verb.begin(), verb.end());
    const absl::StatusOr<std::string> text = RunTool(OnHost0(argv));
    return text.ok() ? json::parse(*text, nullptr, false) : json{{"error", std::string(text.status().message())}};
  }

  bool AllThere() const {
    const json reply = Ask({"hosts"});
    if (!reply.contains("hosts") || reply["hosts"].size() != 2) return false;
    for (const json& host : reply["hosts"]) {
      if (!host["connected"].get<bool>() || host["up"].get<int>() == 0) return false;
    }
    return true;
  }

  // Hosts that an answer does not cover.
  std::vector<std::string> Missing(const std::vector<std::string>& verb) const {
    std::vector<std::string> names;
    const json reply = Ask(verb);
    if (!reply.contains("coverage")) return {reply.dump()};
    for (const json& missing : reply["coverage"]["missing"]) {
      const auto text = missing.get<std::string>();
      names.push_back(text.substr(0, text.find(':')));
    }
    return names;
  }

  using Seen = std::multiset<std::pair<uint64_t, std::string>>;  // number and text
  // What the host's agents wrote into their own file, all runs.
  Seen Written(int host) const {
    Seen seen;
    std::ifstream file(testbed_->fabric().HostRunDir(host) + "/events.jsonl");
    for (std::string line; std::getline(file, line);) {
      const json event = json::parse(line, nullptr, false);
      if (!event.is_discarded()) seen.emplace(event["seq"].get<uint64_t>(), event["text"].get<std::string>());
    }
    return seen;
  }
  Seen Stored(int host) const {
    Seen seen;
    const json reply = Ask({"events", "--host", absl::StrCat("h", host), "-n", "10000"});
    if (!reply.contains("events")) return seen;
    for (const json& event : reply["events"])
      seen.emplace(event["event"]["event"]["seq"].get<uint64_t>(), event["event"]["event"]["text"].get<std::string>());
    return seen;
  }
  bool SameEvents(int host) const {
    const Seen written = Written(host);
    return !written.empty() && Stored(host) == written;
  }
  // Events of the agent's own making.
  void Act(int host, int times) {
    for (int i = 0; i < times; ++i) {
      v1::SetModeRequest request;
      request.set_mode(i % 2 == 0 ? v1::MODE_PROTECT : v1::MODE_OBSERVE);
      EXPECT_TRUE(testbed_->agent(host).SetMode(request).ok());
    }
  }
  std::string Why() const {
    std::ifstream log(folder_ + "/log");
    return absl::StrCat(Ask({"hosts"}).dump(1), "\n", std::string{std::istreambuf_iterator<char>(log), {}});
  }

  std::string folder_;
  std::unique_ptr<Testbed> testbed_;
  ProcessId fleet_, alertmanager_;
};

TEST_F(FleetServiceTest, HoldsWhatAllHostsSeeAndLosesNothingWhileItIsGone) {
  ASSERT_NE(fleet_.pid, 0);
  const absl::Time begun = absl::Now();
  ASSERT_TRUE(Eventually([&] { return AllThere(); })) << Why();
  std::printf("both hosts with their paths %.1f s after the service's start\n",
              absl::ToDoubleSeconds(absl::Now() - begun));
  const json topology = Ask({"topology"});
  EXPECT_GE(topology["switches"].size(), 4u) << topology.dump(1);
  for (int host = 0; host < 2; ++host) EXPECT_TRUE(Eventually([&] { return SameEvents(host); })) << Why();

  ASSERT_EQ(kill(fleet_.pid, SIGKILL), 0);
  ASSERT_TRUE(EndProcess(fleet_).ok());
  for (int host = 0; host < 2; ++host) Act(host, 6);
  // The spool outlives its agent, too.
  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  ASSERT_TRUE(testbed_->StartAgent(1).ok());
  Act(1, 4);
  StartFleet();
  const absl::Time again = absl::Now();
  for (int host = 0; host < 2; ++host) {
    EXPECT_TRUE(Eventually([&] { return SameEvents(host); }, absl::Minutes(2)))
        << Why() << "\nwritten " << Written(host).size() << ", stored " << Stored(host).size();
  }
  std::printf("all events there %.1f s after the service was started again\n",
              absl::ToDoubleSeconds(absl::Now() - again));
  EXPECT_TRUE(Eventually([&] { return AllThere(); })) << Why();

  // A partial answer says what it is.
  ASSERT_TRUE(EndAgent(*testbed_, 1, SIGTERM).ok());
  EXPECT_TRUE(Eventually([&] { return Missing({"topology"}) == std::vector<std::string>{"h1"}; })) << Why();
  EXPECT_EQ(Missing({"hosts"}), std::vector<std::string>{"h1"});
  EXPECT_TRUE(Missing({"topology", "--at=-5s"}).empty()) << "as it was then";

  ASSERT_EQ(kill(fleet_.pid, SIGTERM), 0);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(fleet_); }, absl::Seconds(20))) << "it ends cleanly";
}

// All four ways over it, without a port that goes down.
TEST_F(FleetServiceTest, ASilentlyCutSpineIsOneFindingThatEndsWhenItHeals) {
  ASSERT_NE(fleet_.pid, 0);
  StartAlertmanager();
  // Both paths of both hosts, with their hops, and for as long as the service wants to hear all hosts first.
  const absl::Time begun = absl::Now();
  ASSERT_TRUE(Eventually([&] {
    const json reply = Ask({"topology"});
    return reply.contains("switches") && reply["switches"].size() == 4 && reply["links"].size() == 12 &&
           absl::Now() > begun + absl::Seconds(15);
  })) << Ask({"topology"}).dump(1)
      << Why();
  EXPECT_TRUE(Ask({"findings", "--all"})["findings"].empty()) << Ask({"findings", "--all"}).dump(1);

  const auto cut = [&](const Fault& fault) {
    for (int leaf = 0; leaf < 2; ++leaf) {
      EXPECT_TRUE(testbed_->fabric().SetFault(LinkDirection::LeafToSpine(leaf, 1), fault).ok());
      EXPECT_TRUE(testbed_->fabric().SetFault(LinkDirection::SpineToLeaf(1, leaf), fault).ok());
    }
  };
  cut(Fault::Drop());
  const absl::Time cut_at = absl::Now();
  EXPECT_TRUE(Eventually([&] { return Ask({"findings"})["findings"].size() == 1; })) << Why();
  std::printf("found %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut_at));
  const absl::Time found_at = absl::Now();
  ASSERT_TRUE(Eventually([&] { return Alerts().size() == 1; })) << Why();
  std::printf("alert %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut_at));
  EXPECT_LT(absl::Now() - found_at, absl::Seconds(3));
  EXPECT_EQ(Alerts()[0]["labels"]["scope"], "switch spine1") << Alerts().dump(1);
  const json found = Ask({"findings"})["findings"][0];
  EXPECT_EQ(found["cause"], "switch dead") << found.dump(1);
  EXPECT_EQ(found["scope"], "switch spine1") << found.dump(1);
  EXPECT_EQ(found["hosts"], (json{"h0", "h1"})) << found.dump(1);
  EXPECT_EQ(Ask({"findings", found["id"].get<std::string>()})["findings"].size(), 1u);

  cut(Fault::None());
  EXPECT_TRUE(Eventually([&] { return Ask({"findings"})["findings"].empty(); }, absl::Minutes(2)))
      << Ask({"findings"}).dump(1) << Why();
  EXPECT_TRUE(Eventually([&] { return Alerts().is_array() && Alerts().empty(); })) << Alerts().dump(1);
  const json all = Ask({"findings", "--all"})["findings"];
  ASSERT_EQ(all.size(), 1u) << all.dump(1);
  EXPECT_EQ(all[0]["id"], found["id"]);
}

}  // namespace
}  // namespace cw::lab
