// SPDX-License-Identifier: Apache-2.0
//
// What the kernel knows about a loaded BPF program. Threads: no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "maps/bpf_map.h"

namespace cw::dataplane {

struct ProgramInfo {
  uint32_t id = 0;
  std::string name;  // the kernel keeps 15 characters
  std::string tag;   // hex; a hash of the instructions, without the maps that they use
  uint32_t verified_insns = 0;
  uint32_t translated_insns = 0;  // as they run
  uint64_t run_time_ns = 0;       // both 0 unless kernel.bpf_stats_enabled
  uint64_t run_count = 0;
  std::vector<uint32_t> map_ids;  // sorted
};

absl::StatusOr<ProgramInfo> GetProgramInfo(int fd);
absl::StatusOr<ProgramInfo> GetProgramInfoById(uint32_t id);

// The constants (.rodata) of a program, by its maps; empty when it has none. `known` are maps at hand: any other is
// opened by its number, which is PermissionDenied without CAP_SYS_ADMIN.
absl::StatusOr<std::string> ProgramConstants(const ProgramInfo& info, const std::vector<maps::BpfMap>& known);

// The same instructions with the same constants (the maps may be others). What may not be looked at counts as another.
absl::StatusOr<bool> SameProgram(const ProgramInfo& a, const ProgramInfo& b, const std::vector<maps::BpfMap>& known);

// For people: `xdp_pass (id 12)`.
std::string DescribeProgram(uint32_t id);

}  // namespace cw::dataplane
