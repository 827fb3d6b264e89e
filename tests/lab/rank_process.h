// SPDX-License-Identifier: Apache-2.0
//
// A process of its own, as a training's rank is, that drives the profiler plug-in as NCCL would. One thread.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/nccl_rank.h"

namespace cw::lab {

// Its socket's other end is its standard input; no other child has it.
class RankProcess {
 public:
  RankProcess(const std::string& socket, int rank, const char* direction, const std::vector<uint32_t>& qpns) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    socket_ = ends[0];
    std::vector<std::string> words = {CW_NCCL_RANK, NCCL_PLUGIN, absl::StrCat(rank), direction};
    for (uint32_t qpn : qpns) words.push_back(absl::StrCat(qpn));
    std::vector<std::string> environment = {"CWFABRIC_INPROC_SOCKET=" + socket, "CWFABRIC_JOB=labjob"};
    std::vector<char*> arguments, variables;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& variable : environment) variables.push_back(variable.data());
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    if (posix_spawn(&pid_, CW_NCCL_RANK, &actions, nullptr, arguments.data(), variables.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~RankProcess() {
    if (socket_ >= 0) close(socket_);
    if (pid_ > 0) (void)End();
  }
  bool started() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  bool Tell(RankOrder order, uint32_t seq, uint32_t channel = 0) {
    const RankMessage message{order, seq, channel};
    return send(socket_, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(sizeof(message));
  }
  // Those of one channel, so far.
  const std::vector<RankStamp>& Stamps(uint32_t channel) {
    RankStamp stamp;
    while (recv(socket_, &stamp, sizeof(stamp), MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(stamp))) {
      if (stamp.channel < kRankChannels) stamps_[stamp.channel].push_back(stamp);
    }
    return stamps_[channel];
  }
  // Its exit status: it ends when it hears that nobody is there, or is ended.
  int End() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    int status = -1;
    for (int i = 0; i < 1000 && waitpid(pid_, &status, WNOHANG) == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
    if (status == -1) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    pid_ = -1;
    return status;
  }

 private:
  int socket_ = -1;
  std::vector<RankStamp> stamps_[kRankChannels];
  pid_t pid_ = -1;
};

}  // namespace cw::lab
