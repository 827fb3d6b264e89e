// SPDX-License-Identifier: Apache-2.0
//
// Fabrics that the fleet's simulator runs on.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/sim/fleet_fabric.h"

namespace cw::sim {

inline std::vector<FleetShape> SmallShapes() {
  return {{.name = "two tiers", .groups = 4, .hosts = 6, .spines = 4},
          {.name = "rails", .groups = 3, .rails = 2, .hosts = 6, .spines = 2},
          {.name = "three tiers", .pods = 3, .groups = 3, .hosts = 4, .spines = 2, .cores = 2, .peers = 8},
          {.name = "planes",
           .pods = 2,
           .groups = 2,
           .rails = 2,
           .hosts = 5,
           .spines = 2,
           .planes = true,
           .cores = 2,
           .peers = 8},
          {.name = "parallel links", .groups = 4, .hosts = 5, .spines = 2, .parallel = 2, .peers = 8},
          {.name = "loopback addresses", .groups = 4, .hosts = 5, .spines = 4, .loopback = true},
          {.name = "30 % without agent", .groups = 4, .hosts = 8, .spines = 3, .missing = 0.3},
          {.name = "sparse plan", .groups = 4, .hosts = 8, .spines = 2, .peers = 2},
          {.name = "one path", .groups = 4, .hosts = 6, .spines = 1},
          {.name = "IPv6", .groups = 3, .hosts = 6, .spines = 3, .ipv6 = true},
          {.name = "no fleet.toml", .groups = 4, .hosts = 5, .spines = 3, .planned = false},
          {.name = "10 % silent", .groups = 4, .hosts = 5, .spines = 4, .silent = 0.1},
          {.name = "50 % silent", .groups = 4, .hosts = 5, .spines = 4, .silent = 0.5},
          {.name = "silent tier", .groups = 4, .hosts = 5, .spines = 4, .silent_tier = true}};
}

// Three tiers, 32 hosts of a leaf, 8 leaves of a pod.
inline FleetShape LargeShape(int hosts) {
  return {.name = "large",
          .pods = std::max(2, hosts / 256),
          .groups = 8,
          .hosts = 32,
          .spines = 8,
          .cores = 4,
          .peers = 6,
          .ways = 3};
}

}  // namespace cw::sim
