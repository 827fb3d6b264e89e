// SPDX-License-Identifier: Apache-2.0
// A control group of the memory controller (version 1 or 2) with a limit. Where this machine gives none, commands get
// the limit of their data segment instead.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace cw::lab {

class MemoryLimit {
 public:
  explicit MemoryLimit(const std::string& name) {
    for (const std::string root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const std::string folder = absl::StrCat(root, "/", name, ".", getpid());
      std::error_code error;
      if (!std::filesystem::create_directory(folder, error)) continue;
      for (const char* file : {"memory.limit_in_bytes", "memory.max"}) {
        if (std::filesystem::exists(absl::StrCat(folder, "/", file))) limit_ = absl::StrCat(folder, "/", file);
      }
      if (!limit_.empty()) folder_ = folder;
      if (!limit_.empty()) return;
      std::filesystem::remove(folder, error);
    }
  }
  ~MemoryLimit() {
    if (folder_.empty()) return;
    EndAll();
    std::error_code error;
    for (int i = 0; i < 100 && !std::filesystem::remove(folder_, error); ++i) absl::SleepFor(absl::Milliseconds(20));
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  // Lines of a shell that put it, and what it executes, under a limit of so many bytes.
  std::string Lines(uint64_t bytes) {
    if (folder_.empty()) return absl::StrCat("ulimit -d ", bytes / 1024, "\n");
    std::ofstream(limit_) << bytes;
    return absl::StrCat("echo $$ > ", folder_, "/cgroup.procs || exit 1\n");
  }
  // Kills what is still in it.
  void EndAll() {
    if (folder_.empty()) return;
    std::ifstream processes(folder_ + "/cgroup.procs");
    for (pid_t pid; processes >> pid;) kill(pid, SIGKILL);
  }
  const char* kind() const { return folder_.empty() ? "the limit of its data segment" : "a control group"; }

 private:
  std::string folder_, limit_;
};

}  // namespace cw::lab
