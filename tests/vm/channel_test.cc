// SPDX-License-Identifier: Apache-2.0
// The command channel without a machine: the real command server at the other end of a socket.
#include "tests/vm/channel.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/vm/child.h"

namespace cw::vm {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(20);

class ChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    ChildOptions options;
    options.argv = {CW_VM_GUESTD, std::to_string(sockets[1])};
    options.keep_fds = {sockets[1]};
    auto server = ChildProcess::Start(options);
    close(sockets[1]);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = std::make_unique<Channel>(sockets[0]);
    ASSERT_TRUE(channel_->WaitReady(kSoon).ok());
  }

  std::unique_ptr<ChildProcess> server_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(ChannelTest, ReturnsOutputAndExitCode) {
  auto result = channel_->Exec("echo out; echo err >&2; exit 7", kSoon);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->output, "out\nerr\n");
}

TEST_F(ChannelTest, InputReachesTheCommandUnchanged) {
  std::string bytes;
  for (int i = 0; i < 3'000'000; i++) bytes.push_back(static_cast<char>(i * 7 + i / 256));
  auto result = channel_->Exec("cat", kSoon, bytes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->output == bytes);
}

TEST_F(ChannelTest, ManyCommandsAtOnceKeepTheirOutputApart) {
  std::vector<std::unique_ptr<Command>> commands;
  for (int i = 0; i < 8; i++) {
    auto command = channel_->Start(absl::StrCat("for n in $(seq 2000); do echo line-", i, "; done; exit ", i));
    ASSERT_TRUE(command.ok()) << command.status();
    commands.push_back(*std::move(command));
  }
  for (int i = 0; i < 8; i++) {
    auto result = commands[i]->Wait(kSoon);
    ASSERT_TRUE(result.ok()) << result.status();
    std::string expected;
    for (int n = 0; n < 2000; n++) absl::StrAppend(&expected, "line-", i, "\n");
    EXPECT_EQ(result->output, expected);
    EXPECT_EQ(result->exit_code, i);
  }
}

TEST_F(ChannelTest, DeadlineKillsTheCommandAndTellsItsOutput) {
  std::string pid_file = testing::TempDir() + "/cw_channel_test_pid";
  auto result = channel_->Exec("echo begun; sleep 1000 & echo $! > " + pid_file + "; wait", absl::Seconds(1));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("begun"));
  // Its child is in the same process group, and gone or on its way: the server answers in order.
  auto alive =
      channel_->Exec("p=$(cat " + pid_file + "); for i in $(seq 200); do kill -0 $p || exit 0; sleep 0.1; done", kSoon);
  ASSERT_TRUE(alive.ok()) << alive.status();
  EXPECT_THAT(alive->output, testing::HasSubstr("No such process"));
  std::filesystem::remove(pid_file);
}

TEST_F(ChannelTest, SignalAndWaitForOutput) {
  auto command = channel_->Start("trap 'echo stopped; exit 3' INT; echo up; while :; do sleep 0.05; done");
  ASSERT_TRUE(command.ok());
  ASSERT_TRUE((*command)->WaitForOutput("up\n", kSoon).ok());
  EXPECT_TRUE((*command)->running());
  (*command)->Signal(SIGINT);
  auto result = (*command)->Wait(kSoon);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->output, "up\nstopped\n");
  EXPECT_EQ((*command)->WaitForOutput("never", kSoon).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ChannelTest, ProcessLeftBehindDoesNotHoldTheResult) {
  auto result = channel_->Exec("sleep 30 & echo $!", kSoon);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(channel_->Exec("kill " + result->output, kSoon).ok());
}

TEST_F(ChannelTest, LostServerIsUnavailable) {
  auto command = channel_->Start("sleep 30");
  ASSERT_TRUE(command.ok());
  kill(server_->pid(), SIGKILL);
  EXPECT_EQ((*command)->Wait(kSoon).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE((*command)->running());
}

}  // namespace
}  // namespace cw::vm
