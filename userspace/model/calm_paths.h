// SPDX-License-Identifier: Apache-2.0
//
// Paths of which a host has nothing to say but their delays (up, nothing lost, as many probes as usual), as they travel
// to the fleet service: nearly all paths, nearly always. In columns, since neighbours are alike, and deflated (RFC
// 1951).
//
// What is deflated: the number of paths; then for each, column by column, as varints: its number, as what is more than
// the one before + 1; its base, as the ZigZag of the difference to the one before; the length of its PackedSketch; then
// all sketches. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cw {

struct CalmPath {
  uint32_t path = 0;     // its number; each once, ascending
  uint64_t base_ns = 0;  // windowed minimum of the one-way delay
  std::string queue;     // PackedSketch of the delay above it
  bool operator==(const CalmPath&) const = default;
};

inline constexpr size_t kMostCalmBytes = 1 << 20;  // before they are deflated

// "": they are not ascending, or take more than kMostCalmBytes. No path: no bytes, too.
std::string PackCalmPaths(absl::Span<const CalmPath> paths);

// InvalidArgument: not what PackCalmPaths made of at most `most` paths. Takes no more memory than kMostCalmBytes and
// what the paths need, whatever the bytes claim. The sketches are not looked into.
absl::StatusOr<std::vector<CalmPath>> UnpackCalmPaths(absl::string_view bytes, size_t most);

}  // namespace cw
