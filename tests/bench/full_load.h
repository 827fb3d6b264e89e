// SPDX-License-Identifier: Apache-2.0
//
// The lab's full load for benchmarks in which steering acts: queue pairs from every host to its partner behind the
// other leaf, both ways, which fill a share of every leaf-spine link as long as they are spread evenly. Two leaves.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "userspace/lab/emulator.h"
#include "userspace/lab/testbed.h"

namespace cw::bench {

inline constexpr int kLoadFlows = 8;  // from each host

// Returns when every agent has put the queue pairs of its host on paths. Their transport timer is a second: it does not
// end because the machine stood still, so what is sent again was missing. Unavailable: the agents did not.
absl::StatusOr<std::unique_ptr<lab::Emulator>> StartFullLoad(lab::Testbed& testbed, double share, uint64_t seed);

}  // namespace cw::bench
