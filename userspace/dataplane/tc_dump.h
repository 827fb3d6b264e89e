// SPDX-License-Identifier: Apache-2.0
//
// BPF programs attached by tc filters (clsact), read over route netlink: RTM_GETTFILTER, rtnetlink(7), tc-bpf(8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::dataplane {

struct TcProgram {
  std::string name;  // as the filter calls it
  uint32_t id = 0;   // of the program
};

absl::StatusOr<std::vector<TcProgram>> DumpTcPrograms(unsigned ifindex, bool egress);

// One datagram of such a dump. Returns false once the dump is done. Errors of the kernel as status; malformed lengths
// end the parse. Exposed for tests.
absl::StatusOr<bool> ParseTcDump(const void* data, size_t length, std::vector<TcProgram>& programs);

}  // namespace cw::dataplane
