// SPDX-License-Identifier: Apache-2.0
#include "sync/fleet_time.h"

#include <cmath>

namespace cw::sync {

int64_t FleetTime::ToFleetNs(int64_t local_ns) const {
  return local_ns + offset_ns + std::llround(slope_ppb * 1e-9 * static_cast<double>(local_ns - anchor_ns));
}

int64_t FleetTime::ToLocalNs(int64_t fleet_ns) const {
  const double since_anchor = static_cast<double>(fleet_ns - offset_ns - anchor_ns) / (1 + slope_ppb * 1e-9);
  return anchor_ns + std::llround(since_anchor);
}

const char* FleetTroubleName(FleetTrouble trouble) {
  switch (trouble) {
    case FleetTrouble::kNone:
      return "none";
    case FleetTrouble::kSettling:
      return "settling";
    case FleetTrouble::kDisrupted:
      return "disrupted";
    case FleetTrouble::kDisputed:
      return "disputed";
    case FleetTrouble::kIsolated:
      return "isolated";
    case FleetTrouble::kSplit:
      return "split";
    case FleetTrouble::kMerging:
      return "merging";
  }
  return "?";
}

const char* FleetStateName(const FleetTime& fleet_time) {
  const FleetTrouble trouble = fleet_time.trouble;
  const bool parts = trouble == FleetTrouble::kSplit || trouble == FleetTrouble::kMerging;
  if (parts && fleet_time.state == SyncState::kUnknown) return FleetTroubleName(trouble);
  return trouble == FleetTrouble::kDisrupted ? "disrupted" : SyncStateName(fleet_time.state);
}

}  // namespace cw::sync
