// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/program_runner.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>

namespace cw::dataplane {

absl::StatusOr<int> ProgramRunner::Ingress(absl::Span<uint8_t> frame) const {
  bpf_test_run_opts run = {};
  run.sz = sizeof(run);
  run.data_in = frame.data();
  run.data_size_in = static_cast<__u32>(frame.size());
  run.data_out = frame.data();
  run.data_size_out = static_cast<__u32>(frame.size());
  run.repeat = 1;
  if (bpf_prog_test_run_opts(xdp_fd_, &run) != 0) {
    return absl::ErrnoToStatus(errno, "run the ingress program on a probe that came by verbs");
  }
  return static_cast<int>(run.retval);
}

absl::Status ProgramRunner::Egress(absl::Span<const uint8_t> frame) const {
  bpf_test_run_opts run = {};
  run.sz = sizeof(run);
  run.data_in = frame.data();
  run.data_size_in = static_cast<__u32>(frame.size());
  run.repeat = 1;
  if (bpf_prog_test_run_opts(tc_fd_, &run) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "run the egress program on a probe that goes by verbs");
}

}  // namespace cw::dataplane
