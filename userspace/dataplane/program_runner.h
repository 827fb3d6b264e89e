// SPDX-License-Identifier: Apache-2.0
//
// Shows a probe that no netdev saw to the dataplane's own programs (BPF_PROG_RUN; Linux, Documentation/bpf/
// bpf_prog_run.rst), so that what probes mean is decided in one place, whatever they came by: authentication, replay,
// the answer, stamps, path states, records in the rings. Costs a system call and one run of the program.
// Thread rule: any thread. The descriptors must outlive the runner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cw::dataplane {

class ProgramRunner {
 public:
  ProgramRunner(int xdp_fd, int tc_fd) : xdp_fd_(xdp_fd), tc_fd_(tc_fd) {}

  // The ingress program on a frame from its Ethernet header on: its verdict (enum xdp_action), and the frame as the
  // program leaves it, of the same length, at most kMaxFrame. arrived_ns: when the NIC's device saw it, by
  // CLOCK_MONOTONIC, where it told (maps/arrival.h).
  static constexpr size_t kMaxFrame = 2048;
  absl::StatusOr<int> Ingress(absl::Span<uint8_t> frame, std::optional<int64_t> arrived_ns) const;
  // The egress program: it notes when our own request leaves.
  absl::Status Egress(absl::Span<const uint8_t> frame) const;

 private:
  int xdp_fd_;
  int tc_fd_;
};

}  // namespace cw::dataplane
