// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_poller.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

extern char** environ;

namespace cw::bench {

absl::Status Poller::Start(const std::vector<std::string>& argv, const std::string& command, absl::Duration period,
                           const std::string& out) {
  int ends[2];  // a socket, because a pipe's dead reader would be a signal
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::ErrnoToStatus(errno, "socket for a client's commands");
  const int file = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    close(ends[0]);
    close(ends[1]);
    return absl::ErrnoToStatus(errno, absl::StrCat("open ", out));
  }
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_adddup2(&actions, file, 1);
  posix_spawn_file_actions_adddup2(&actions, file, 2);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  close(file);
  if (error != 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("start ", argv[0]));
  }
  process_ = {pid, lab::StartTicks(pid)};
  stdin_ = ends[0];
  out_ = out;
  stop_.store(false);
  thread_ = std::thread([this, command, period] { Run(command + "\n", period); });
  return absl::OkStatus();
}

void Poller::Run(std::string line, absl::Duration period) {
  for (absl::Time next = absl::Now(); !stop_.load(); next += period) {
    absl::SleepFor(next - absl::Now());
    // A client that does not read loses the question; the count of its answers tells.
    (void)send(stdin_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

absl::StatusOr<std::string> Poller::Stop() {
  if (process_.pid == 0) return absl::FailedPreconditionError("the client was not started");
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
  close(stdin_);
  const absl::Time deadline = absl::Now() + absl::Seconds(3);
  while (lab::IsAlive(process_) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  absl::Status ended = lab::EndProcess(process_);
  process_ = {};
  if (!ended.ok()) return ended;
  std::ifstream file(out_);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace cw::bench
