// SPDX-License-Identifier: Apache-2.0
// A host process that never lives longer than we do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace cw::vm {

struct ChildOptions {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH
  std::string log;                // file for standard output and error, truncated
  std::vector<int> keep_fds;      // inherited under the same numbers; the caller closes its own copies
};

// Destruction kills the process and waits for it. Thread rule: any thread.
class ChildProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const;

 private:
  ChildProcess() = default;
  void Keep(ChildOptions options, int log_fd);

  mutable absl::Mutex mutex_;
  pid_t pid_ = -1;        // set once, before Start returns
  bool started_ = false;  // guarded by mutex_
  bool ended_ = false;    // guarded by mutex_
  std::thread keeper_;
};

}  // namespace cw::vm
