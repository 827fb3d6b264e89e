// SPDX-License-Identifier: Apache-2.0
//
// What a process holds, from /proc/PID. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace cw::bench {

struct ProcessSample {
  double rss_mib = 0;
  double pss_mib = 0;  // pages that several processes share count by their share
  int descriptors = 0;
  int threads = 0;
};
absl::StatusOr<ProcessSample> ReadProcess(pid_t pid);

// The number behind "NAME:" at the beginning of a line, as smaps_rollup and status have it (proc(5)). Pure.
std::optional<uint64_t> NumberOf(const std::string& text, const std::string& name);

}  // namespace cw::bench
