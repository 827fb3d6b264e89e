// SPDX-License-Identifier: Apache-2.0
//
// Fleet time in the words of the API. Pure; any thread that may read the FleetClock.
#pragma once

#include <cstdint>
#include <string>

#include "sync/pair_estimator.h"
#include "userspace/agent/fleet_clock/clock.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::agent {

// at_ns: the local time for which the estimate holds.
cwfabric::v1::PeerClock ToApi(const sync::Estimate& estimate, int64_t at_ns);

// now_ns: the host's local clock. anchor: its configured kind; anchor_note: why it gave no reading, "" when it did.
cwfabric::v1::ClockReply MakeClockReply(const FleetClock& clock, int64_t now_ns, const std::string& anchor,
                                        const std::string& anchor_note);

}  // namespace cw::agent
