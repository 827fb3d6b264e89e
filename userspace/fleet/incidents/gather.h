// SPDX-License-Identifier: Apache-2.0
//
// What the store adds to an incident: events of the span, and of hosts without a ring what they told at the time, in
// the words of a ring. Errors are the store's. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

inline constexpr size_t kMostIncidentEvents = 50'000;

// Of all hosts, in the order of their arrival.
absl::StatusOr<std::vector<cwfabric::v1::FleetEventOf>> EventsOfSpan(Store& store, int64_t from_ns, int64_t to_ns);
// RingSecond each, of some 256 KiB at most: one of many paths comes in parts. None: nothing is kept of it.
absl::StatusOr<std::vector<std::string>> SecondsFromStore(Store& store, const std::string& host, int64_t from_ns,
                                                          int64_t to_ns);

}  // namespace cw::fleet
