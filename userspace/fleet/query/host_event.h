// SPDX-License-Identifier: Apache-2.0
//
// An agent's event as findings need it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/picture.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

// Whether findings are made from events of this type.
bool ConcernsFindings(const std::string& type);
// Without its time: the caller knows whether it is believed.
HostEvent HostEventOf(const std::string& host, uint64_t run, const cwfabric::v1::FleetEvent& event);

// An event of the store as answers and incidents have it.
cwfabric::v1::FleetEventOf MessageOf(const StoredEvent& stored);

}  // namespace cw::fleet
