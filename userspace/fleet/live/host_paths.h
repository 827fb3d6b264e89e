// SPDX-License-Identifier: Apache-2.0
//
// A host's live state as findings need it. Pure; any thread.
#pragma once

#include <vector>

#include "userspace/fleet/findings/picture.h"
#include "userspace/fleet/ingest/ingest.h"

namespace cw::fleet {

// What a path's state says of its being alive.
PathEvidence::State EvidenceOf(const PathSample& sample);

// Without its rack.
HostEvidence HostEvidenceOf(const LiveHost& live, absl::Time now);

// Without hops; Host is 0. Paths that its newest report does not name any more are left out: they are of before it
// moved to other ports, or to another leaf.
std::vector<PathEvidence> PathEvidenceOf(const LiveHost& live);

// Of those whose hops are known.
std::vector<Trace> TracesOf(const std::vector<PathEvidence>& paths);

// Of its reverse paths: whose probes arrive while its own are silent.
std::vector<Arrival> ArrivalsOf(const LiveHost& live);

}  // namespace cw::fleet
