// SPDX-License-Identifier: Apache-2.0
#include "sync/fleet_clock.h"

#include <algorithm>

namespace cw::sync {

const FleetTime& FleetClock::Update(int64_t now_ns, const std::vector<PeerEstimate>& peers) {
  std::string best = self_;
  for (const PeerEstimate& p : peers) {
    if (p.estimate.state == SyncState::kSynchronised) best = std::min(best, p.name);
  }
  if (best != wanted_) {
    wanted_ = best;
    wanted_since_ns_ = now_ns;
  }
  const bool change = time_.reference != best && (time_.reference.empty() || now_ns - wanted_since_ns_ >= hold_ns_);
  if (change) {
    time_.reference = best;
    ++time_.epoch;
  }
  if (time_.reference == self_) {
    time_.anchor_ns = now_ns;
    time_.state = SyncState::kSynchronised;
    time_.offset_ns = 0;
    time_.slope_ppb = 0;
    time_.error_est_ns = time_.bound_ns = 0;
    return time_;
  }
  const auto it = std::find_if(peers.begin(), peers.end(), [&](const auto& p) { return p.name == time_.reference; });
  if (it == peers.end()) {  // no longer configured: the last line goes on until the hold is over
    time_.state = SyncState::kUnknown;
    return time_;
  }
  const Estimate& e = it->estimate;
  if (!change && e.epoch != peer_epoch_) ++time_.epoch;
  peer_epoch_ = e.epoch;
  time_.anchor_ns = now_ns;
  time_.state = e.state;
  time_.offset_ns = e.offset_ns;
  time_.slope_ppb = e.slope_ppb;
  time_.error_est_ns = e.error_est_ns;
  time_.bound_ns = e.bound_ns;
  return time_;
}

}  // namespace cw::sync
