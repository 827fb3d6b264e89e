// SPDX-License-Identifier: Apache-2.0
//
// Which links explain the paths that are dead: of the links that no living path takes, the fewest that cover all dead
// paths (found greedily: the one that explains most first). So a spine's uplink, a peer's only link, and the host's own
// are told apart as far as the host's paths go.
// Pure; any thread. Source: N. Duffield, "Network tomography of binary network performance characteristics", IEEE
// Trans. Inf. Theory 52(12), 2006; greedy cover: V. Chvátal, Mathematics of Operations Research 4(3), 1979.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cw::control {

struct PathHealth {
  bool dead = false;
  std::vector<uint64_t> links;  // names of the directed links it takes, each once; empty: not known, says nothing
};

struct LinkFault {
  // One link, or several of which any one explains the same paths as well; sorted.
  std::vector<uint64_t> links;
  std::vector<size_t> paths;  // indices of the dead paths that it explains, ascending; none is in two faults
};

struct LinkFaults {
  std::vector<LinkFault> faults;    // most paths first
  std::vector<size_t> unexplained;  // dead paths each link of which some living path takes: not a link's death
};

LinkFaults FindLinkFaults(absl::Span<const PathHealth> paths);

}  // namespace cw::control
