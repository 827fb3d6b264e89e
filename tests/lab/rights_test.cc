// SPDX-License-Identifier: Apache-2.0
// What of root's rights the threads of a running agent have: agents of a plain user with the five capabilities that
// the service is given, on the lab's fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/steady_traffic.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/testbed.h"
#include "userspace/rights/rights.h"

namespace cw::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// As systemd starts it: another user, five capabilities, folders of its own. Locks of interfaces are in /run/cwfabric.
constexpr char kAsService[] = R"sh(#!/bin/sh
set -e
instance=$(sed -n 's/^instance = "\(.*\)"/\1/p' "$2")
secret=$(sed -n 's/^secret_file = "\(.*\)"/\1/p' "$2")
pins=/sys/fs/bpf/cwfabric/v1/$instance
mkdir -p "$pins" /run/cwfabric
chown -R 65534:65534 "$pins" "$(dirname "$2")" "$secret"
chmod o+x "$(dirname "$secret")" "$(dirname "$(dirname "$2")")"
caps=-all,+bpf,+perfmon,+net_admin,+net_raw,+sys_nice
export caps
# Where systemd mounts it, /sys/fs/bpf is open to root alone: as for the service, there is one folder in an empty one.
exec unshare --mount sh -ec 'mount -t tmpfs -o uid=65534,gid=65534,mode=755 none /run/cwfabric
mkdir /run/cwfabric/bpf
mount --bind /sys/fs/bpf/cwfabric /run/cwfabric/bpf
mount -t tmpfs -o mode=755 none /sys/fs/bpf
mkdir /sys/fs/bpf/cwfabric
mount --bind /run/cwfabric/bpf /sys/fs/bpf/cwfabric
umount /run/cwfabric/bpf
exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set $caps --inh-caps $caps --ambient-caps $caps "$0" "$@"' "${0%.sh}" "$@"
)sh";

class RightsOnFabric : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cw-rights-XXXXXX";
    folder_ = mkdtemp(name);
    ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
    // Where another user may look.
    fs::copy_file(CWLAB_AGENTD_BINARY, folder_ + "/agent");
    std::ofstream(folder_ + "/agent.sh") << kAsService;
    for (const char* file : {"/agent", "/agent.sh"}) ASSERT_EQ(chmod((folder_ + file).c_str(), 0755), 0);
    TestbedSpec spec;
    spec.fabric = {.lab = "rightstest", .link_mbps = 400, .ecmp_seed = 1};
    spec.mode = "protect";
    spec.agent_binary = folder_ + "/agent.sh";
    spec.adjust = [](int, config::Config& config) { config.probe.cpus = "0"; };
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed_ = *std::move(up);
  }
  ~RightsOnFabric() override {
    testbed_.reset();
    fs::remove_all(folder_);
  }

  using Fields = std::map<std::string, std::string>;  // of /proc/PID/task/TID/status
  static Fields Read(const fs::path& task) {
    Fields fields;
    std::ifstream file(task / "status");
    for (std::string line; std::getline(file, line);) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(":\t", 1));
      if (parts.size() == 2) fields[parts[0]] = parts[1];
    }
    return fields;
  }
  // By thread; those that ended meanwhile are left out.
  std::map<pid_t, Fields> Threads(int host) const {
    std::map<pid_t, Fields> threads;
    for (const auto& task : fs::directory_iterator(absl::StrCat("/proc/", testbed_->agent_pid(host), "/task"))) {
      Fields fields = Read(task.path());
      if (fields.contains("CapPrm")) threads[std::stoi(task.path().filename())] = std::move(fields);
    }
    return threads;
  }
  static rights::Set Caps(const Fields& fields, const char* key) { return std::stoull(fields.at(key), nullptr, 16); }

  std::string folder_;
  std::unique_ptr<Testbed> testbed_;
};

TEST_F(RightsOnFabric, OnlyTheMainLoopHasAny) {
  const pid_t main = testbed_->agent_pid(0);
  ASSERT_TRUE(testbed_->agent(0).Doctor().ok()) << "a client, so that there are threads for clients";
  const std::map<pid_t, Fields> threads = Threads(0);
  ASSERT_GT(threads.size(), 4u);
  size_t probers = 0;
  for (const auto& [id, fields] : threads) {
    const std::string& name = fields.at("Name");
    EXPECT_EQ(Caps(fields, "CapPrm"), id == main ? rights::kSteady : rights::kNone) << name;
    EXPECT_EQ(Caps(fields, "CapEff"), Caps(fields, "CapPrm")) << name;
    EXPECT_EQ(Caps(fields, "CapInh"), 0u) << name;
    EXPECT_EQ(Caps(fields, "CapAmb"), 0u) << name;
    EXPECT_EQ(fields.at("NoNewPrivs"), "1") << name;
    EXPECT_EQ(Caps(fields, "SigIgn") >> (SIGPIPE - 1) & 1, 1u) << "who closes his end while it writes would end it";
    EXPECT_THAT(fields.at("Uid"), ::testing::StartsWith("65534\t")) << name;
    if (name != "cw-prober") continue;
    ++probers;
    EXPECT_EQ(fields.at("Cpus_allowed_list"), "0");
  }
  EXPECT_EQ(probers, 1u);

  // The prober tells of itself once a second.
  absl::StatusOr<api::v1::StatusReply> status = testbed_->agent(0).Status();
  EXPECT_TRUE(
      Eventually([&] { return (status = testbed_->agent(0).Status()).ok() && status->prober().cpus() == "0"; }));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(status->capabilities(), ElementsAre("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"));
  EXPECT_EQ(status->prober().cpus(), "0");
  EXPECT_TRUE(status->prober().realtime()) << "which it was made before it gave up the right";
  const absl::StatusOr<api::v1::DoctorReply> doctor = testbed_->agent(0).Doctor();
  ASSERT_TRUE(doctor.ok()) << doctor.status();
  for (const api::v1::Check& check : doctor->checks()) {
    if (check.name() != "capabilities" && check.name() != "real time") continue;
    EXPECT_EQ(check.result(), api::v1::Check::RESULT_OK) << check.seen();
  }
}

// What it still does with what it keeps: probes, verdicts, new flows; and what its next start finds.
TEST_F(RightsOnFabric, ThatIsEnoughToGoOn) {
  absl::StatusOr<std::unique_ptr<Emulator>> emulator = testbed_->NewEmulator(1);
  ASSERT_TRUE(emulator.ok()) << emulator.status();
  ASSERT_TRUE((*emulator)->AddJob(SteadyTraffic()).ok());
  ASSERT_TRUE((*emulator)->Start().ok());
  const auto flows = [&] {
    const absl::StatusOr<api::v1::QpsReply> reply = testbed_->agent(0).Qps({});
    return reply.ok() ? reply->flows_size() : -1;
  };
  EXPECT_TRUE(Eventually([&] { return flows() == 4; })) << flows();
  api::v1::SetModeRequest mode;
  mode.set_mode(api::v1::MODE_OPTIMIZE);
  EXPECT_TRUE(testbed_->agent(0).SetMode(mode).ok());

  ASSERT_EQ(kill(testbed_->agent_pid(0), SIGKILL), 0);
  const absl::Status again = testbed_->StartAgent(0);
  ASSERT_TRUE(again.ok()) << again;
  EXPECT_TRUE(Eventually([&] { return flows() == 4; })) << flows();
  const absl::StatusOr<api::v1::StatusReply> status = testbed_->agent(0).Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->mode(), api::v1::MODE_OPTIMIZE) << "adopted";
}

}  // namespace
}  // namespace cw::lab
