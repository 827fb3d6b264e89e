// SPDX-License-Identifier: Apache-2.0
//
// The cost of one run of a BPF program, by BPF_PROG_TEST_RUN (the kernel's own timing of many runs in a row).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cw::bench {

struct RunResult {
  double ns = 0;        // mean of one run
  uint32_t retval = 0;  // of the last run
  std::string frame;    // as the last run left it
};

// The packet is handed to the kernel once: what the program changes stays changed for the next run.
absl::StatusOr<RunResult> RunProgram(int prog_fd, const std::string& frame, int repeat);

}  // namespace cw::bench
