// SPDX-License-Identifier: Apache-2.0
//
// What people are shown of an incident: what changed first, each path before and behind the pivot, delays per second
// over all hosts. Its pivot is where paths began to change, if that was within 10 s before the file's. Pure; any
// thread.
#pragma once

#include "userspace/api/incident.pb.h"
#include "userspace/fleet/incidents/bundle.h"

namespace cw::fleet {

cwfabric::v1::IncidentView ViewOf(const Bundle& bundle);

}  // namespace cw::fleet
