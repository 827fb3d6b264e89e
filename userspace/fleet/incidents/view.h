// SPDX-License-Identifier: Apache-2.0
//
// What people are shown of an incident: what changed first, each path before and behind the pivot, delays per second
// over all hosts. Pure; any thread.
#pragma once

#include "userspace/api/incident.pb.h"
#include "userspace/fleet/incidents/bundle.h"

namespace cw::fleet {

cwfabric::v1::IncidentView ViewOf(const Bundle& bundle);

}  // namespace cw::fleet
