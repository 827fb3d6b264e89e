// SPDX-License-Identifier: Apache-2.0
//
// What slow and standing collectives cost a job: how much longer they took than is usual for their like, times the GPUs
// that waited for them (one of each rank), by what they waited for. A collective that several ranks tell of counts
// once, as the rank has it that lost most. Where the network held it back, the place is the finding at that time that
// its queue pair's way crosses; without one it is the way itself. Pure; any thread. Cost: linear in collectives times
// findings.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

struct ToldCollective {
  std::string host;
  const cwfabric::v1::Collective* what = nullptr;
  int64_t time_ns = 0;  // when it was told
};

// Rows by what weighs most; no coverage.
cwfabric::v1::FleetCostReply CostOf(absl::Span<const ToldCollective> told, absl::Span<const Finding> findings,
                                    const Topology& topology);

}  // namespace cw::fleet
