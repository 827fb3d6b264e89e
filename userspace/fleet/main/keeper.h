// SPDX-License-Identifier: Apache-2.0
//
// What a fleet service does by itself: stores what is queued every 50 ms, climbs the store's ladder, and lets go what
// is too old, which it says before. A thread of its own for each of the two.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "userspace/fleet/drains/order_clock.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

class Keeper {
 public:
  // clock: says what is too old.
  Keeper(UplinkService& uplink, Store& store, OrderClock& clock, const Retention& retention);
  ~Keeper();                                       // what is queued is stored
  uint64_t failures() const { return failures_; }  // commits that the store did not take; any thread

 private:
  bool Sleep(absl::Duration duration);  // false: it ends
  void Flushing();
  void Flush();
  void Keeping();
  void TellLosses();
  void TellHostLosses();
  void LetGo();

  UplinkService& uplink_;
  Store& store_;
  OrderClock& clock_;
  const Retention retention_;
  WorkLosses losses_;  // that were told
  uint64_t thinned_ = 0, thinned_events_ = 0;
  struct Told {
    HostLosses losses;
    absl::Time at = absl::InfinitePast();
  };
  std::map<std::string, Told> told_losses_;  // by host
  std::string trouble_;                      // of the last commit, as it was told
  std::atomic<uint64_t> failures_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread flusher_, keeper_;
};

}  // namespace cw::fleet
