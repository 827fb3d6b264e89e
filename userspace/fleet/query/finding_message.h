// SPDX-License-Identifier: Apache-2.0
//
// Findings as they are stored and sent. Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

cwfabric::v1::FleetFinding MessageOf(const Finding& finding);
// InvalidArgument: a cause or an id that this release does not know.
absl::StatusOr<Finding> FindingOf(const cwfabric::v1::FleetFinding& message);

}  // namespace cw::fleet
