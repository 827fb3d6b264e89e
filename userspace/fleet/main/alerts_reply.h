// SPDX-License-Identifier: Apache-2.0
//
// What receivers of alerts were told, as a reply. Pure; any thread.
#pragma once

#include <vector>

#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/alerts/alerts.h"

namespace cw::fleet {

// deliveries: by receiver, as counts. all: those that are over and were delivered, too.
cwfabric::v1::FleetAlertsReply AlertsReplyOf(const std::vector<AlertCounts>& counts,
                                             const std::vector<std::vector<AlertDelivery>>& deliveries,
                                             const std::vector<cwfabric::v1::FleetMute>& mutes, bool all);

}  // namespace cw::fleet
