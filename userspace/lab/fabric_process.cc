// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

extern char** environ;

namespace cw::lab {
namespace {

struct Stdio {  // −1: inherited
  int in = -1;
  int out = -1;
};

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, const Stdio& stdio) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (stdio.in >= 0) posix_spawn_file_actions_adddup2(&actions, stdio.in, 0);
  if (stdio.out >= 0) {
    posix_spawn_file_actions_adddup2(&actions, stdio.out, 1);
    posix_spawn_file_actions_adddup2(&actions, stdio.out, 2);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);  // what the caller's caller left open
  pid_t pid = 0;
  int error = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) return absl::ErrnoToStatus(error, absl::StrCat("start ", argv[0]));
  return pid;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[16384];
  off_t offset = 0;
  for (ssize_t n; (n = pread(fd, buffer, sizeof(buffer), offset)) > 0; offset += n) text.append(buffer, n);
  return text;
}

// Fields of /proc/PID/stat from the third on; the second, a name in brackets, may hold anything.
std::vector<std::string> StatFields(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  size_t bracket = line.rfind(')');
  if (bracket == std::string::npos) return {};
  return absl::StrSplit(line.substr(bracket + 1), ' ', absl::SkipEmpty());
}

}  // namespace

absl::StatusOr<std::string> RunTool(const std::vector<std::string>& argv, const std::string& input) {
  // Memory files on both ends: no pipe that could fill up while the other side waits.
  int in = memfd_create("cwlab-in", MFD_CLOEXEC), out = memfd_create("cwlab-out", MFD_CLOEXEC);
  absl::Status status;
  std::string text;
  if (in < 0 || out < 0 || write(in, input.data(), input.size()) != static_cast<ssize_t>(input.size()) ||
      lseek(in, 0, SEEK_SET) < 0) {
    status = absl::ErrnoToStatus(errno, "memory file for a tool");
  } else if (absl::StatusOr<pid_t> pid = Spawn(argv, {in, out}); !pid.ok()) {
    status = pid.status();
  } else {
    int wait_status = 0;
    while (waitpid(*pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    text = ReadAll(out);
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status)) {
      status = absl::InternalError(absl::StrCat(absl::StrJoin(argv, " "), " failed: ", text));
    }
  }
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<ProcessId> StartProcess(const std::vector<std::string>& argv, const std::string& log_file) {
  Stdio stdio;
  if (!log_file.empty()) {
    stdio.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    stdio.out = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (stdio.out < 0) {
      absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("open ", log_file));
      close(stdio.in);
      return status;
    }
  }
  absl::StatusOr<pid_t> pid = Spawn(argv, stdio);
  if (stdio.in >= 0) close(stdio.in);
  if (stdio.out >= 0) close(stdio.out);
  if (!pid.ok()) return pid.status();
  return ProcessId{*pid, StartTicks(*pid)};
}

uint64_t StartTicks(pid_t pid) {
  const std::vector<std::string> fields = StatFields(pid);
  return fields.size() > 19 ? std::stoull(fields[19]) : 0;
}

bool IsAlive(const ProcessId& process) {
  const std::vector<std::string> fields = StatFields(process.pid);
  return process.pid > 0 && fields.size() > 19 && fields[0] != "Z" && fields[0] != "X" &&
         std::stoull(fields[19]) == process.start_ticks;
}

absl::Status EndProcess(const ProcessId& process, absl::Duration grace) {
  for (int signal : {SIGTERM, SIGKILL}) {
    if (!IsAlive(process)) break;
    kill(process.pid, signal);
    const absl::Time deadline = absl::Now() + grace;
    while (IsAlive(process) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  }
  if (IsAlive(process)) return absl::InternalError(absl::StrCat("process ", process.pid, " does not end"));
  if (StartTicks(process.pid) == process.start_ticks) waitpid(process.pid, nullptr, WNOHANG);  // our own zombie
  return absl::OkStatus();
}

ProcessId SelfId() { return {getpid(), StartTicks(getpid())}; }

}  // namespace cw::lab
