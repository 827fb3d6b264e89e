// SPDX-License-Identifier: Apache-2.0
//
// "1 path", "2 paths": numbers with their noun, for people. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace cw {

inline std::string Counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace cw
