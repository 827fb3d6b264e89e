// SPDX-License-Identifier: Apache-2.0
//
// Findings that people muted for a while, kept by the store. Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/caller.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/drains/order_clock.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

inline constexpr char kMuteOrder[] = "mute";  // in the store

class Muter {
 public:
  static constexpr size_t kMost = 1000;

  Muter(Store& store, OrderClock& clock);
  absl::StatusOr<cwfabric::v1::FleetActionReply> Mute(const cwfabric::v1::FleetMuteRequest& request,
                                                      const api::Caller& caller);
  absl::StatusOr<cwfabric::v1::FleetActionReply> Unmute(const cwfabric::v1::FleetUnmuteRequest& request,
                                                        const api::Caller& caller);
  std::vector<cwfabric::v1::FleetMute> Mutes() const;  // ends by the wall clock
  // By whom a finding is muted, a phrase; "" = by nobody. Those whose time is over go.
  std::string MutedBy(const Finding& finding);

 private:
  void EndOver(int64_t now_ns);

  Store& store_;
  OrderClock& clock_;
  mutable std::mutex mutex_;                           // of what follows
  std::map<uint64_t, cwfabric::v1::FleetMute> mutes_;  // by their start
};

}  // namespace cw::fleet
