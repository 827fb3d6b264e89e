// SPDX-License-Identifier: Apache-2.0
//
// Processors as cpuset(7) writes them: "0-1,8".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw {

constexpr int kMaxCpus = 8192;  // what Linux can be built for

// Sorted, each once; "" is none. InvalidArgument says what was expected.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);
// `cpus` sorted.
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace cw
