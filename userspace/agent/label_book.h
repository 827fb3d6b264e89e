// SPDX-License-Identifier: Apache-2.0
//
// Labels that somebody gave to processes, for queue pairs whose owners give none: by process number, or by control
// group, with all that are below it (a batch system's prolog knows the job's). Kept in memory; a number that another
// process has got meanwhile has no label. Processes are read from /proc (proc_pid_stat(5), cgroups(7), version 2).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/host/roots.h"

namespace cw::agent {

struct Label {
  uint32_t pid = 0;    // 0: by control group
  std::string cgroup;  // /system.slice/job7; "" by process
  std::string label;
};

class LabelBook {
 public:
  explicit LabelBook(host::Roots roots = {}) : roots_(std::move(roots)) {}

  static constexpr size_t kMost = 4096;
  static constexpr size_t kLongest = 64;  // bytes of a label

  // NotFound: no such process. InvalidArgument, ResourceExhausted: what is wrong.
  absl::Status SetPid(uint32_t pid, const std::string& label);
  absl::Status SetCgroup(const std::string& cgroup, const std::string& label);
  // How many there were.
  size_t ClearPid(uint32_t pid);
  size_t ClearCgroup(const std::string& cgroup);
  size_t ClearAll();

  // nullptr: none. A process's own label counts for more than its group's, the deepest group for most.
  const Label* Of(uint32_t pid);
  std::vector<Label> All() const;
  bool empty() const { return by_pid_.empty() && by_cgroup_.empty(); }
  // Labels of processes that ended go; what is known of processes is read anew. Once in a while.
  void Refresh();

 private:
  struct OfPid {
    Label label;
    uint64_t started = 0;  // in the kernel's ticks
  };
  absl::Status Check(const std::string& label) const;
  uint64_t StartedOf(uint32_t pid) const;  // 0: there is none
  std::string CgroupOf(uint32_t pid) const;

  const host::Roots roots_;
  std::map<uint32_t, OfPid> by_pid_;
  std::map<std::string, Label> by_cgroup_;
  absl::flat_hash_map<uint32_t, std::string> cgroups_;  // as read since the last Refresh
};

}  // namespace cw::agent
