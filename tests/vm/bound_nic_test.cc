// SPDX-License-Identifier: Apache-2.0
// The ingress program that asks a NIC for its stamps is bound to that NIC, and Linux may crash later when such a
// program was moved while it was loaded. So it is loaded in a machine of its own, never on the build host: two agents
// with veth devices, whose driver has the question (and answers "none" for what software sent) and sends and receives
// as ever; then the devices go away with the programs on them, which is when a kernel would crash.
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/agents.h"
#include "tests/vm/rig.h"
#include "userspace/config/config.h"

namespace cw::vm {
namespace {

constexpr char kKernel[] = "6.12";  // the question is of 6.3
constexpr char kHosts[] = "ab";

class BoundNicTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(CW_VM_LOG_DIR);
    ImageOptions options{.kernel = kKernel, .files = AgentFiles(CW_AGENTD, CW_CTL)};
    auto image = Image::Build(options);
    if (absl::IsUnavailable(image.status())) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status();
    auto machine = Vm::Boot(*image, {.name = "bound", .nics = {}, .rxe_device = "", .log_dir = CW_VM_LOG_DIR});
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
    ASSERT_TRUE(machine_->WaitReady(absl::Seconds(120)).ok());
    ASSERT_TRUE(machine_->Put("a secret of this machine, for tests", "/etc/cwfabric/secret", 0600).ok());
    for (int i = 0; i < 2; ++i) {
      config::Config config = AgentConfig();
      config.instance = config.host_name = Host(i);
      config.nics[0].rx_stamps = config::RxStamps::kHardware;
      config.peers.clear();
      for (int peer = 0; peer < 2; ++peer) {
        config.peers.push_back({.name = Host(peer), .addresses = {Address(peer)}, .origin = ""});
      }
      ASSERT_TRUE(machine_->Put(config::ToToml(config), absl::StrCat("/etc/cwfabric/", Host(i), ".toml")).ok());
    }
  }

  static std::string Host(int i) { return std::string(1, kHosts[i]); }
  static std::string Address(int i) { return absl::StrCat("10.97.0.", i + 1); }

  std::string Run(const std::string& line) {
    auto output = machine_->Run(line);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.value_or("");
  }
  // ip netns exec would hide the BPF file system.
  std::string In(int i, const std::string& line) {
    return absl::StrCat("nsenter --net=/run/netns/", Host(i), " ", line);
  }
  void PlugIn() {
    Run("ip netns add a && ip netns add b && ip -n a link add eth0 type veth peer name eth0 netns b");
    for (int i = 0; i < 2; ++i) {
      Run(absl::StrFormat(
          "ip -n %1$s link set lo up && ip -n %1$s addr add %2$s/24 dev eth0 && ip -n %1$s link set eth0 up", Host(i),
          Address(i)));
    }
  }
  void StartAgents() {
    for (int i = 0; i < 2; ++i) {
      auto agent = machine_->Start(In(i, absl::StrCat("cwagentd --config /etc/cwfabric/", Host(i), ".toml")));
      ASSERT_TRUE(agent.ok()) << agent.status();
      agents_[i] = *std::move(agent);
    }
  }
  nlohmann::json Ctl(int i, const std::string& arguments) {
    auto text = machine_->Run(absl::StrCat("cwctl --instance ", Host(i), " --json ", arguments));
    if (!text.ok()) return nlohmann::json::object();
    nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    return json.is_discarded() ? nlohmann::json::object() : json;
  }
  bool Eventually(const std::function<bool()>& done) {
    for (absl::Time end = absl::Now() + absl::Seconds(90); absl::Now() < end; absl::SleepFor(absl::Milliseconds(500))) {
      if (done()) return true;
    }
    return false;
  }
  bool Synchronised(int i) { return Ctl(i, "clock tracking").value("state", "") == "synchronised"; }
  // Both agents have their program asking the NIC, hear each other, and agree by software's stamps, as there are no
  // others.
  void ExpectAtWork() {
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(Eventually([&] { return Synchronised(i); })) << agents_[i]->output();
      const nlohmann::json nics = Ctl(i, "clock nics");
      EXPECT_TRUE(nics.at("nics").at(0).at("stamps").get<bool>()) << nics.dump() << agents_[i]->output();
      EXPECT_GT(Counter(i, "nic_stamps_missing"), 100u) << "probes that the NIC was not asked about";
      EXPECT_EQ(Counter(i, "nic_stamps"), 0u) << "stamps that no hardware made";
    }
  }
  uint64_t Counter(int i, const std::string& name) {
    const nlohmann::json counters = Ctl(i, "counters");
    for (const auto& counter : counters.value("counters", nlohmann::json::array())) {
      if (counter.value("name", "") == name) return counter.value("value", uint64_t{0});
    }
    return 0;
  }
  void KillAgents() {
    Run("killall -9 cwagentd");
    agents_[0].reset();
    agents_[1].reset();
  }

  std::unique_ptr<Vm> machine_;
  std::unique_ptr<Command> agents_[2];
};

TEST_F(BoundNicTest, AsksTheNicAndOutlivesIt) {
  PlugIn();
  StartAgents();
  ExpectAtWork();
  std::printf("%s", Run("bpftool prog show name cw_xdp_ingress").c_str());
  // A killed agent's program goes on, and the next one takes it over.
  KillAgents();
  StartAgents();
  ExpectAtWork();
  // The NICs go away under their programs, again and again.
  for (int round = 0; round < 2; ++round) {
    KillAgents();
    Run("ip netns del a; ip netns del b; sleep 0.5; rm -rf /run/cwfabric");
    PlugIn();
    StartAgents();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Eventually([&] { return Synchronised(i); })) << agents_[i]->output();
  }
  Run("ip link add one type veth peer name two && ip link del one");  // the lock of all devices is free
  EXPECT_FALSE(absl::StrContains(Run("dmesg"), "Call Trace")) << Run("dmesg");
}

}  // namespace
}  // namespace cw::vm
