// SPDX-License-Identifier: Apache-2.0
//
// Fleet time on one host: a straight line over its local clock. Pure; plain data.
#pragma once

#include <cstdint>
#include <string>

#include "sync/pair_estimator.h"

namespace cw::sync {

// fleet = local + offset_ns + slope · (local − anchor_ns)
struct FleetTime {
  SyncState state = SyncState::kUnknown;
  int64_t anchor_ns = 0;  // of the local clock
  int64_t offset_ns = 0;
  double slope_ppb = 0;
  int64_t error_est_ns = 0;
  int64_t bound_ns = 0;   // at the anchor; grows by max drift × distance from it
  uint32_t epoch = 0;     // another epoch is another timeline, or a step
  std::string reference;  // host name; of whom the bound is told

  int64_t ToFleetNs(int64_t local_ns) const;
  int64_t ToLocalNs(int64_t fleet_ns) const;
};

}  // namespace cw::sync
