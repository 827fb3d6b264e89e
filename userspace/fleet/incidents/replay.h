// SPDX-License-Identifier: Apache-2.0
//
// An incident through the code that finds causes: a picture each second from the seconds of all its hosts, as the
// service makes one from what they send. So a rule that was changed is tried on what happened.
// Other than the service it sees every path each second in place of every ten, and nothing of hosts that are not in
// the incident. Pure; any thread.
#pragma once

#include "userspace/api/incident.pb.h"
#include "userspace/fleet/findings/findings.h"
#include "userspace/fleet/incidents/bundle.h"
#include "userspace/fleet/topology/fleet_file.h"

namespace cw::fleet {

// Looks at paths, one each second; a file that somebody made may ask for more than anybody waits for. An hour of
// 28,000.
inline constexpr size_t kMostLooks = 100'000'000;

// Behind most_looks it ends, with a note.
cwfabric::v1::IncidentReplay Replay(const Bundle& bundle, const FleetFile& fabric, const FindingRules& rules,
                                    size_t most_looks = kMostLooks);

}  // namespace cw::fleet
