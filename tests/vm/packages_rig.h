// SPDX-License-Identifier: Apache-2.0
//
// The Debian packages in a fresh Debian 12 with systemd, in a virtual machine: its tests install and configure them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/vm/host_command.h"
#include "tests/vm/rig.h"

namespace cw::vm {

class PackagesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(CW_VM_LOG_DIR);
    const std::string archive = absl::StrCat(CW_VM_LOG_DIR, "/debian.cpio");
    std::vector<std::string> command = {CW_VM_SOURCE_DIR "/mkdebian.sh", archive};
    for (const auto& entry : std::filesystem::directory_iterator(CW_PACKAGES_DIR)) {
      if (entry.path().extension() == ".deb" && !absl::StrContains(entry.path().string(), "-dbgsym"))
        command.push_back(entry.path());
    }
    ASSERT_GT(command.size(), 2u) << "no packages in " CW_PACKAGES_DIR ": make deb";
    const int status = RunHostCommand(command);
    if (status == 3) GTEST_SKIP() << "a Debian root cannot be had (see the message above)";
    ASSERT_EQ(status, 0);
    auto image = Image::Build({.files = others_, .archives = {archive}});
    if (absl::IsUnavailable(image.status())) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status();
    auto machine = Vm::Boot(*image, {.name = "packages",
                                     .nics = {},
                                     .rxe_device = "",
                                     .memory_mib = 2560,
                                     .root = "/debian",
                                     .log_dir = CW_VM_LOG_DIR});
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
    ASSERT_TRUE(machine_->WaitReady(absl::Seconds(240)).ok());
  }

  std::string Run(const std::string& line) {
    auto output = machine_->Run(line, absl::Seconds(120));
    EXPECT_TRUE(output.ok()) << output.status();
    return std::string(absl::StripAsciiWhitespace(output.value_or("")));
  }
  // What it printed, whatever its exit code.
  std::string Try(const std::string& line) {
    auto result = machine_->Exec(line, absl::Seconds(120));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::string(absl::StripAsciiWhitespace(result->output)) : "";
  }
  bool Eventually(const std::function<bool()>& done) {
    for (absl::Time end = absl::Now() + absl::Seconds(90); absl::Now() < end; absl::SleepFor(absl::Milliseconds(500))) {
      if (done()) return true;
    }
    return false;
  }
  std::string Active() { return Try("systemctl is-active cwfabric-agent"); }
  std::string Journal() { return Try("journalctl --no-pager -n 12 -u cwfabric-agent"); }
  void Install() {
    Run("ip link add roce0 type veth peer name roce1 && ip addr add 10.98.0.1/24 dev roce0 && ip link set roce0 up && "
        "ip link set roce1 up");
    Run("DEBIAN_FRONTEND=noninteractive dpkg -i /packages/*.deb 2>&1");
  }
  void Configure() {
    ASSERT_TRUE(machine_->Put("a secret of this machine, for tests", "/etc/cwfabric/group.key", 0600).ok());
    Run("chown cwfabric: /etc/cwfabric/group.key");
    Run("sed -i -e 's/^#\\[\\[nic\\]\\]/[[nic]]\\nname = \"roce0\"/' /etc/cwfabric/cwagentd.toml");
    Run("systemctl restart cwfabric-agent");
    ASSERT_TRUE(Eventually([&] { return Active() == "active"; })) << Active() << Journal();
  }
  std::string MainPid() { return Run("systemctl show -P MainPID cwfabric-agent"); }
  std::string Attached() { return Run("ip -d link show roce0; tc filter show dev roce0 egress; bpftool link show"); }

  std::string Events(const std::string& type) {
    return Run("journalctl --no-pager -u cwfabric-agent CW_EVENT=" + type);
  }

  std::unique_ptr<Vm> machine_;
  std::vector<std::pair<std::string, std::string>> others_;  // packages of another release, put into /other
};

}  // namespace cw::vm
