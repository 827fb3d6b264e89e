// SPDX-License-Identifier: Apache-2.0
// A process that has no descriptor left, for as long as this lives.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace cw {

class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (next >= 0) close(next);
    rlimit lower = before_;
    lower.rlim_cur = static_cast<rlim_t>(next) + 8;  // what is behind that stays open
    setrlimit(RLIMIT_NOFILE, &lower);
    for (int fd; (fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0;) taken_.push_back(fd);
    none_left_ = errno == EMFILE && !taken_.empty();
  }
  ~NoDescriptors() {
    for (const int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  bool none_left() const { return none_left_; }

 private:
  rlimit before_{};
  std::vector<int> taken_;
  bool none_left_ = false;
};

}  // namespace cw
