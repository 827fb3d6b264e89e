// SPDX-License-Identifier: Apache-2.0
//
// Fleet time on one host: a straight line over its local clock. Pure; plain data.
#pragma once

#include <cstdint>
#include <string>

#include "sync/pair_estimator.h"

namespace cw::sync {

// Why fleet time is not what it should be.
enum class FleetTrouble {
  kNone,
  kSettling,   // young: no timeline yet, or not near enough to the neighbours
  kDisrupted,  // the local clock was stepped or slept; the timeline is looked for afresh
  kDisputed,   // more neighbours contradict each other than can be told apart: nobody is followed
  kIsolated,   // no neighbour can be compared: the last line goes on
  kSplit,      // the timeline has fallen into parts that contradict each other
  kMerging,    // its parts come together: this host has gone over to another, or all slew towards each other
};

// How far TAI may leave its line over fleet time, for its bound.
inline constexpr double kTaiWanderPpb = 5000;

// fleet = local + offset_ns + slope · (local − anchor_ns)
struct FleetTime {
  SyncState state = SyncState::kUnknown;
  int64_t anchor_ns = 0;  // of the local clock
  int64_t offset_ns = 0;
  double slope_ppb = 0;
  int64_t error_est_ns = 0;       // likely; never more than the bound
  double error_drift_ppb = 1000;  // how fast error_est grows with the distance from the anchor
  int64_t bound_ns =
      0;               // at the anchor, from any synchronised host's fleet time; grows by max drift × distance from it
  uint32_t epoch = 0;  // another epoch is another timeline, or a step
  std::string reference;  // name of the live host of the lowest id
  FleetTrouble trouble = FleetTrouble::kNone;

  int64_t ToFleetNs(int64_t local_ns) const;
  int64_t ToLocalNs(int64_t fleet_ns) const;
};

const char* FleetTroubleName(
    FleetTrouble trouble);  // "none", "settling", "disrupted", "disputed", "isolated", "split", "merging"
const char* FleetStateName(const FleetTime& fleet_time);  // SyncStateName, or "disrupted", "split", "merging"

}  // namespace cw::sync
