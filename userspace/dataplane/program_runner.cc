// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/program_runner.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "maps/arrival.h"

namespace cw::dataplane {

// Metadata stands in front of the packet, in what goes in and in what comes out.
absl::StatusOr<int> ProgramRunner::Ingress(absl::Span<uint8_t> frame, std::optional<int64_t> arrived_ns) const {
  if (frame.size() > kMaxFrame) return absl::InvalidArgumentError("a frame that no probe has");
  std::array<uint8_t, sizeof(cw_arrival) + kMaxFrame> stamped;
  xdp_md context = {};
  bpf_test_run_opts run = {};
  run.sz = sizeof(run);
  run.data_in = run.data_out = frame.data();
  run.data_size_in = static_cast<__u32>(frame.size());
  if (arrived_ns) {
    const cw_arrival arrival = {.magic = CW_ARRIVAL_MAGIC, .ns = static_cast<__u64>(*arrived_ns)};
    std::memcpy(stamped.data(), &arrival, sizeof(arrival));
    std::copy(frame.begin(), frame.end(), stamped.begin() + sizeof(arrival));
    run.data_in = run.data_out = stamped.data();
    run.data_size_in += sizeof(arrival);
    context.data = sizeof(arrival);
    context.data_end = run.data_size_in;
    run.ctx_in = &context;
    run.ctx_size_in = sizeof(context);
  }
  run.data_size_out = run.data_size_in;
  run.repeat = 1;
  if (bpf_prog_test_run_opts(xdp_fd_, &run) != 0) {
    return absl::ErrnoToStatus(errno, "run the ingress program on a probe that came by verbs");
  }
  if (arrived_ns) std::copy_n(stamped.begin() + sizeof(cw_arrival), frame.size(), frame.begin());
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
