// SPDX-License-Identifier: Apache-2.0
//
// Fleet time on one host: the clock of a reference host, reached through the pair estimate to it. The reference is the
// host with the lowest name among ourselves and the peers that are synchronised, so hosts that see the same peers agree
// without a word. (A mesh with consensus replaces this later behind the same result.)
// Pure; one thread per object.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sync/pair_estimator.h"

namespace cw::sync {

struct PeerEstimate {
  std::string name;
  Estimate estimate;  // of the peer's clock against ours, at the time of Update
};

// fleet = local + offset_ns + slope · (local − anchor_ns)
struct FleetTime {
  SyncState state = SyncState::kUnknown;
  int64_t anchor_ns = 0;  // of the local clock
  int64_t offset_ns = 0;
  double slope_ppb = 0;
  int64_t error_est_ns = 0;
  int64_t bound_ns = 0;   // at the anchor; grows by max drift × distance from it
  uint32_t epoch = 0;     // another epoch is another timeline: a new reference, or a step
  std::string reference;  // host name

  int64_t ToFleetNs(int64_t local_ns) const;
  int64_t ToLocalNs(int64_t fleet_ns) const;
};

class FleetClock {
 public:
  // reference_hold_ns: a better reference must have been synchronised for so long, a lost one gone for so long, before
  // it is changed: each change is a new timeline.
  explicit FleetClock(std::string self, int64_t reference_hold_ns = 3'000'000'000)
      : self_(std::move(self)), hold_ns_(reference_hold_ns) {}

  const FleetTime& Update(int64_t now_ns, const std::vector<PeerEstimate>& peers);
  const FleetTime& now() const { return time_; }

 private:
  std::string self_;
  int64_t hold_ns_;
  std::string wanted_;
  int64_t wanted_since_ns_ = 0;
  uint32_t peer_epoch_ = 0;
  FleetTime time_;
};

}  // namespace cw::sync
