// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

namespace cw::vm {
namespace {

// Between fork and exec in a process with threads: system calls only.
[[noreturn]] void Become(char* const* argv, pid_t parent, int log_fd, const std::vector<int>& keep_fds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // the parent ended before prctl took effect
  dup2(log_fd, 1);
  dup2(log_fd, 2);
  for (int fd : keep_fds) fcntl(fd, F_SETFD, 0);
  execvp(argv[0], argv);
  dprintf(2, "%s: errno %d\n", argv[0], errno);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildOptions options) {
  std::string log = options.log.empty() ? "/dev/null" : options.log;
  int log_fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log_fd < 0) return absl::ErrnoToStatus(errno, log);
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  // PDEATHSIG follows the thread that forked, not the process: so a thread of the child's own forks and waits for it.
  child->keeper_ = std::thread(&ChildProcess::Keep, child.get(), std::move(options), log_fd);
  absl::MutexLock lock(&child->mutex_);
  child->mutex_.Await(absl::Condition(&child->started_));
  if (child->pid_ < 0) return absl::InternalError("fork failed");
  return child;
}

void ChildProcess::Keep(ChildOptions options, int log_fd) {
  std::vector<char*> argv;
  for (std::string& word : options.argv) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) Become(argv.data(), parent, log_fd, options.keep_fds);
  close(log_fd);
  {
    absl::MutexLock lock(&mutex_);
    pid_ = pid;
    started_ = true;
    ended_ = pid < 0;
  }
  if (pid < 0) return;
  // Not reaped until ended_ is set, so that the destructor's kill can hit no one else.
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  waitpid(pid, nullptr, 0);
}

ChildProcess::~ChildProcess() {
  {
    absl::MutexLock lock(&mutex_);
    if (started_ && !ended_) kill(pid_, SIGKILL);
  }
  if (keeper_.joinable()) keeper_.join();
}

bool ChildProcess::running() const {
  absl::MutexLock lock(&mutex_);
  return !ended_;
}

}  // namespace cw::vm
