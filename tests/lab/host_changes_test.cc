// SPDX-License-Identifier: Apache-2.0
// Devices that get other names and addresses that go, under agents of hosts with two NICs: each is said within two
// seconds, no healthy NIC is left, and no other device is taken for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "tests/lab/agent_matrix.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;
using ::testing::HasSubstr;

class HostChanges : public ::testing::Test {
 protected:
  void SetUp() override {
    TestbedSpec spec;
    spec.fabric = {.lab = absl::StrCat("hc", getpid()), .leaves = 2, .spines = 2, .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = ModeAsked();
    spec.second_nics = {0, 1};
    spec.agent_binary = CWAGENTD_BINARY;
    spec.adjust = [this](int host, config::Config& config) {
      config.steering.nic_failover = true;
      if (host == 0 && !roce_nic.name.empty()) config.nics[1] = roce_nic;
    };
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = *std::move(up);
    address = testbed->fabric().HostAddr(0);
    ASSERT_NO_FATAL_FAILURE(TakeOverAsAsked(*testbed, 0));
  }

  // A shell's lines in host 0's namespace, and what they printed.
  std::string InHost(const std::string& lines, int wanted = 0) {
    const std::string out = testbed->fabric().RunDir() + "/out";
    const std::string line = absl::StrCat("{ ", lines, "; } >", out, " 2>&1");
    EXPECT_TRUE(RunInNetns(testbed->fabric().HostNetns(0), [&] {
                  const int code = std::system(line.c_str());
                  EXPECT_TRUE(WIFEXITED(code) && WEXITSTATUS(code) == wanted) << lines;
                  return absl::OkStatus();
                }).ok());
    std::ostringstream text;
    text << std::ifstream(out).rdbuf();
    return text.str();
  }
  // The agent of host 0 says so within two seconds from now.
  void ExpectSaid(const std::string& text) {
    const int64_t began_ns = MonotonicNs();
    EXPECT_TRUE(Eventually([&] {
      for (const v1::Event& event : NicEvents()) {
        if (event.text() == text) return true;
      }
      return false;
    })) << text
        << "; said: " << AllSaid();
    EXPECT_LT(MonotonicNs() - began_ns, 2'000'000'000) << text;
  }
  std::vector<v1::Event> NicEvents() {
    v1::EventsRequest request;
    request.set_type("nic");
    std::vector<v1::Event> events;
    (void)testbed->agent(0).Events(request, [&](const v1::Event& event) {
      events.push_back(event);
      return true;
    });
    return events;
  }
  std::string AllSaid() {
    std::string all;
    for (const v1::Event& event : NicEvents()) absl::StrAppend(&all, event.text(), "\n");
    return all;
  }
  // For longer than a NIC that is lost needs to be left.
  void ExpectNothingIsLost() {
    Hold(absl::Seconds(2));
    for (const Testbed::PathDeath& death : testbed->PathDeaths(testbed->origin_ns())) ADD_FAILURE() << death.text;
    const absl::StatusOr<v1::StatusReply> status = testbed->agent(0).Status();
    ASSERT_TRUE(status.ok()) << status.status();
    for (const v1::NicStatus& nic : status->nics()) {
      EXPECT_FALSE(nic.link_down()) << nic.name();
      EXPECT_EQ(nic.pairs_silent(), 0u) << nic.name();
      EXPECT_EQ(nic.pairs_carried(), 0u) << nic.name();
    }
    for (const v1::Event& event : NicEvents()) EXPECT_NE(event.severity(), v1::SEVERITY_ALERT) << event.text();
  }
  // How host 0's agent ended; by itself, or by a signal that is under way.
  int ExitOfAgent() {
    siginfo_t ended{};
    EXPECT_TRUE(Eventually([&] {
      ended = {};
      return waitid(P_PID, static_cast<id_t>(testbed->agent_pid(0)), &ended, WEXITED | WNOHANG) == 0 &&
             ended.si_pid != 0;
    })) << AllSaid();
    EXPECT_EQ(ended.si_code, CLD_EXITED);
    return ended.si_status;
  }
  // What the agent says of a configuration with another [[nic]] than eth0, at its start and when only asked.
  std::string Refusal(const std::string& nic) {
    const std::string run_dir = DescribeAgentHost(testbed->fabric(), 0).run_dir, file = run_dir + "/other.toml";
    std::ofstream(file) << "instance = \"" << testbed->spec().fabric.lab << "-other\"\nrun_dir = \"" << run_dir
                        << "/other\"\nstate_dir = \"" << run_dir << "/other\"\n[keys]\nsecret_file = \""
                        << testbed->fabric().RunDir() << "/secret\"\n[[nic]]\n"
                        << nic << "\n[[peer]]\nname = \"h1\"\naddresses = [\"" << testbed->fabric().HostAddr(1)
                        << "\"]\n";
    const std::string line = absl::StrCat(CWAGENTD_BINARY, " --config ", file);
    const std::string checked = InHost(absl::StrCat(line, " --check-config"), 1);
    EXPECT_EQ(InHost(absl::StrCat("timeout 20 ", line), 1), checked);
    return checked;
  }

  std::unique_ptr<Testbed> testbed;
  std::string address;           // of host 0's eth0
  config::NicConfig roce_nic{};  // host 0's second one at its next start, where it has a name
};

TEST_F(HostChanges, ARenamedNicIsFollowed) {
  InHost("ip link set eth0 name rail0");
  ExpectSaid("NIC eth0 is now called rail0");
  ExpectNothingIsLost();
  // A device that takes the name, and is down.
  InHost("ip link add eth0 type veth peer name far0");
  ExpectNothingIsLost();
  ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, false).ok());
  ExpectSaid("NIC eth0: its link is down, it has no carrier");
  ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, true).ok());
  ExpectSaid("NIC eth0: its link is up again");
  InHost("ip link del eth0; ip link set rail0 name eth0");
  ExpectSaid("NIC eth0 is called so again");
}

TEST_F(HostChanges, TwoNicsThatSwapTheirNamesAreBothFollowed) {
  InHost("ip link set eth0 name between; ip link set eth1 name eth0; ip link set between name eth1");
  ExpectSaid("NIC eth0 is now called eth1");
  ExpectSaid("NIC eth1 is now called eth0");
  ExpectNothingIsLost();
  ASSERT_TRUE(testbed->fabric().SetHostLinkUp(0, false).ok());
  ExpectSaid("NIC eth0: its link is down, it has no carrier");
  EXPECT_THAT(AllSaid(), ::testing::Not(HasSubstr("NIC eth1: its link is down")));
}

TEST_F(HostChanges, AnAddressThatGoesMovesAndComesBack) {
  const std::string addr = absl::StrCat(address, "/32");
  const std::string was = absl::StrReplaceAll(
      InHost(absl::StrCat("ip -4 -o addr show dev eth0 | awk '$4 ~ /^", address, "\\//{print $4}'")), {{"\n", ""}});
  InHost(absl::StrCat("ip addr del ", was, " dev eth0"));
  ExpectSaid(absl::StrCat("NIC eth0: address ", address, " is gone from eth0"));
  InHost(absl::StrCat("ip addr add ", addr, " dev eth1"));
  ExpectSaid(absl::StrCat("NIC eth0: address ", address, " is on eth1 now"));
  InHost(absl::StrCat("ip addr add ", addr, " dev lo; ip addr del ", addr, " dev eth1"));
  ExpectSaid(absl::StrCat("NIC eth0: address ", address, " is there again"));
  InHost(absl::StrCat("ip addr add ", was, " dev eth0 noprefixroute; ip addr del ", addr, " dev lo"));
  Hold(absl::Seconds(2));
  std::string last;
  for (const v1::Event& event : NicEvents()) {
    if (absl::StrContains(event.text(), "NIC eth0: address")) last = event.text();
  }
  EXPECT_EQ(last, absl::StrCat("NIC eth0: address ", address, " is there again"));
}

TEST_F(HostChanges, WhatIsNoNicOrNotItsAddressIsRefusedWithTheRightReason) {
  InHost("ip link property add dev eth0 altname enp9s0; ip addr add 10.66.0.1/32 dev eth0 label eth0:1");
  EXPECT_THAT(Refusal("name = \"eth0\"\naddress = \"10.66.0.9\""),
              HasSubstr(absl::StrCat("NIC eth0: this host has no address 10.66.0.9; addresses of eth0: ", address)));
  EXPECT_THAT(Refusal(absl::StrCat("name = \"eth1\"\naddress = \"", address, "\"")),
              HasSubstr(absl::StrCat("NIC eth1: address ", address, " is on eth0 now")));
  EXPECT_THAT(Refusal("name = \"enp9s0\""), HasSubstr("enp9s0 is an alternative name of eth0: write eth0"));
  EXPECT_THAT(Refusal("name = \"eth0\"\n[[nic]]\nname = \"enp9s0\""),
              HasSubstr("enp9s0 is an alternative name of eth0: write eth0"));
  EXPECT_THAT(Refusal("name = \"eth0:1\""), HasSubstr("eth0:1 is a label of an address, not a device: write eth0 and "
                                                      "address = \"10.66.0.1\""));
  // The same in a file that is read again: nothing is taken.
  const std::string file = absl::StrCat(DescribeAgentHost(testbed->fabric(), 0).run_dir, "/agent.toml");
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  ASSERT_THAT(text.str(), HasSubstr("name = \"eth1\""));
  std::ofstream(file) << absl::StrReplaceAll(text.str(), {{"name = \"eth1\"", "name = \"enp9s0\""}});
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGHUP), 0);
  v1::EventsRequest request;
  request.set_type("config");
  EXPECT_TRUE(Eventually([&] {
    bool said = false;
    (void)testbed->agent(0).Events(request, [&](const v1::Event& event) {
      said |= absl::StrContains(event.text(), "enp9s0 is an alternative name of eth0: write eth0");
      return true;
    });
    return said;
  }));
}

TEST_F(HostChanges, ANicWithItsAddressOnLoopbackIsMadeAnew) {
  ASSERT_EQ(kill(testbed->agent_pid(0), SIGTERM), 0);
  ASSERT_EQ(ExitOfAgent(), 0);
  const std::string make = "ip link add rail9 type veth peer name far9 && ip link set far9 up && ip link set rail9 up";
  InHost(absl::StrCat(make, " && ip addr add 10.99.0.1/32 dev lo"));
  roce_nic = {.name = "rail9", .address = "10.99.0.1"};
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  InHost("ip link del rail9");
  ExpectSaid("NIC rail9: its link is down, the device was removed");
  InHost(make);
  EXPECT_EQ(ExitOfAgent(), 75) << "to be started on the new device";
  const absl::Status started = testbed->StartAgent(0);
  EXPECT_TRUE(started.ok()) << started;
}

}  // namespace
}  // namespace cw::lab
