// SPDX-License-Identifier: Apache-2.0
//
// cwctl off when no agent answers, or when the agent hangs: on a pinned control map of the real kind.
#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "maps/abi.h"
#include "maps/names.h"
#include "tests/unit/cli_fake_agent.h"
#include "tests/unit/cli_run.h"
#include "userspace/api/server.h"

namespace cw::cli {
namespace {

using ::testing::HasSubstr;

class Off : public ::testing::Test {
 protected:
  Off() : instance_("off-test-" + std::to_string(getpid())), pins_(std::string(CW_PIN_ROOT) + "/" + instance_) {
    std::filesystem::create_directories(pins_);
    char name[] = "/tmp/cw-off-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Off() override {
    if (fd_ >= 0) close(fd_);
    std::filesystem::remove_all(pins_);
    std::filesystem::remove_all(folder_);
  }

  void Pin(uint32_t abi_version, uint32_t flags) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = flags);
    const int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, CW_MAP_CTL, 4, sizeof(cw_ctl), 1, &options);
    ASSERT_GE(fd, 0) << strerror(errno);
    ASSERT_EQ(bpf_obj_pin(fd, (pins_ + "/" CW_MAP_CTL).c_str()), 0) << strerror(errno) << "; is bpffs mounted?";
    cw_ctl control{};
    control.abi_version = abi_version;
    control.mode = CW_MODE_OPTIMIZE;
    control.lease_jiffies = 123;
    control.steer_full = 1;
    control.move_gap_ns = 456;
    const uint32_t zero = 0;
    ASSERT_EQ(bpf_map_update_elem(fd, &zero, &control, 0), 0);
    fd_ = fd;
  }

  cw_ctl Read() const {
    cw_ctl control{};
    const uint32_t zero = 0;
    EXPECT_EQ(bpf_map_lookup_elem(fd_, &zero, &control), 0);
    return control;
  }

  std::string instance_, pins_, folder_;
  int fd_ = -1;
};

TEST_F(Off, WithoutAnAgentOnlyTheModeChanges) {
  Pin(CW_ABI_VERSION, BPF_F_MMAPABLE);
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("no agent answered in time; switched off in the kernel through " + pins_ + "/cw_ctl"));
  const cw_ctl control = Read();
  EXPECT_EQ(control.mode, static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_EQ(control.lease_jiffies, 123u);
  EXPECT_EQ(control.steer_full, 1u);
  EXPECT_EQ(control.move_gap_ns, 456u);

  const RunResult again = RunProgram(CWCTL_PATH, {"off", "--instance", instance_, "--for", "5m", "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const nlohmann::json reply = nlohmann::json::parse(again.out);
  EXPECT_THAT(std::string(reply["effect"]), HasSubstr("only an agent could revert it"));
  EXPECT_EQ(reply["reverts_s"], 0);
}

TEST_F(Off, AHangingAgentDoesNotDelayIt) {
  Pin(CW_ABI_VERSION, BPF_F_MMAPABLE);
  api::FakeAgent agent;
  agent.frozen_in_off = true;
  absl::StatusOr<std::unique_ptr<api::Server>> server = api::Server::Start(folder_ + "/agent.sock", agent);
  ASSERT_TRUE(server.ok()) << server.status();
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_, "--socket", folder_ + "/agent.sock"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(Read().mode, static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_THAT(text.out, HasSubstr("switched off in the kernel"));
}

TEST_F(Off, AnotherReleasesProgramsAreSwitchedOffToo) {
  Pin(CW_ABI_VERSION + 1, BPF_F_MMAPABLE);
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(Read().mode, static_cast<uint32_t>(CW_MODE_OFF));
  EXPECT_EQ(Read().lease_jiffies, 123u);
}

TEST_F(Off, MapsWithoutAVersionAreLeftAlone) {
  Pin(0, BPF_F_MMAPABLE);
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.err, HasSubstr("it has no version"));
  EXPECT_EQ(Read().mode, static_cast<uint32_t>(CW_MODE_OPTIMIZE));
}

TEST_F(Off, MapsOfAnotherKindAreLeftAlone) {
  Pin(CW_ABI_VERSION, 0);
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.err, HasSubstr("is no control map of an agent"));
  EXPECT_EQ(Read().mode, static_cast<uint32_t>(CW_MODE_OPTIMIZE));
}

TEST_F(Off, NeitherAgentNorPin) {
  const RunResult text = RunProgram(CWCTL_PATH, {"off", "--instance", instance_});
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_THAT(text.err, HasSubstr("no agent answers on /run/cwfabric/" + instance_ + "/agent.sock"));
  EXPECT_EQ(RunProgram(CWCTL_PATH, {"off", "--instance", "../x"}).exit_code, 2);
}

}  // namespace
}  // namespace cw::cli
