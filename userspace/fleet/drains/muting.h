// SPDX-License-Identifier: Apache-2.0
//
// Which findings a drain explains: what was drained may be dead, silent or pulled. Pure; any thread.
#pragma once

#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

// Of links: where they end at an address that is drained (of a switch or host: or begin there). Of switches, NICs and
// hosts: by name. Never what a part that is drained cannot explain: slow jobs, queues.
bool Explains(const cwfabric::v1::FleetDrain& drain, const Finding& finding);

}  // namespace cw::fleet
