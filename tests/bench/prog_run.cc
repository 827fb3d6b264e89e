// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/prog_run.h"

#include <bpf/bpf.h>
#include <errno.h>

#include <vector>

namespace cw::bench {

absl::StatusOr<RunResult> RunProgram(int prog_fd, const std::string& frame, int repeat) {
  std::vector<char> out(frame.size() + 256);
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = out.data(),
              .data_size_in = static_cast<uint32_t>(frame.size()), .data_size_out = static_cast<uint32_t>(out.size()),
              .repeat = repeat);
  if (bpf_prog_test_run_opts(prog_fd, &options) != 0) return absl::ErrnoToStatus(errno, "BPF_PROG_TEST_RUN");
  return RunResult{static_cast<double>(options.duration), options.retval,
                   std::string(out.data(), options.data_size_out)};
}

}  // namespace cw::bench
