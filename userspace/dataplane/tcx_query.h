// SPDX-License-Identifier: Apache-2.0
//
// tcx: tc programs as BPF links, from Linux 6.6 (kernel commit e420bed02507). By plain bpf(2) calls, because headers
// and libbpf of Debian 12 are older, and cwfabric-off links no library. Errors are an errno; 0 is none. Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::dataplane {

// enum bpf_attach_type and bpf_link_type of those kernels.
inline constexpr uint32_t kTcxIngress = 46, kTcxEgress = 47;
inline constexpr uint32_t kTcxLinkType = 11;

struct TcxProgram {
  uint32_t program = 0;  // id
  uint32_t link = 0;     // id; 0: it is attached without one
};

// In the order in which they see a packet; clsact's filters come after them. EINVAL: this kernel has no tcx.
int QueryTcx(uint32_t ifindex, bool egress, std::vector<TcxProgram>* out);

}  // namespace cw::dataplane
