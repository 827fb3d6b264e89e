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

#include "sync/fleet_time.h"
#include "sync/pair_estimator.h"

namespace cw::sync {

struct PeerEstimate {
  std::string name;
  Estimate estimate;  // of the peer's clock against ours, at the time of Update
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
