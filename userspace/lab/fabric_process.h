// SPDX-License-Identifier: Apache-2.0
//
// Processes of the lab: short tools (ip, tc), long-lived helpers, and recognising a process again after its pid may
// have been reused. Children run in the calling thread's network namespace. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::lab {

// Runs a tool to its end with `input` as stdin and returns stdout. Internal, with the tool's own words, when it exits
// non-zero; NotFound when it is not installed.
absl::StatusOr<std::string> RunTool(const std::vector<std::string>& argv, const std::string& input = "");

struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // /proc/PID/stat field 22, proc(5)
};

// Starts argv with stdout and stderr appended to log_file (empty: inherited, stdin too). The caller waits for it.
absl::StatusOr<ProcessId> StartProcess(const std::vector<std::string>& argv, const std::string& log_file);

uint64_t StartTicks(pid_t pid);          // 0: there is no such process
bool IsAlive(const ProcessId& process);  // the same process, not a zombie
// SIGTERM, then SIGKILL after `grace`. Reaps it when it is a child of ours. Ok when it is gone already.
absl::Status EndProcess(const ProcessId& process, absl::Duration grace = absl::Seconds(2));
ProcessId SelfId();

}  // namespace cw::lab
