// SPDX-License-Identifier: Apache-2.0
//
// Drains over the fleet: orders of people, kept by the store, sent to hosts, and what these answer. Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/caller.h"
#include "userspace/fleet/drains/drain_book.h"
#include "userspace/fleet/drains/order_clock.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/live/departed_nics.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/query/query.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

inline constexpr char kDrainOrder[] = "drain";  // in the store

// What is drained, as the store has it. The store's errors; DataLoss: an order cannot be read. Both say what to do, and
// are no reason to begin without: hosts give back what they are not asked for any more.
absl::StatusOr<DrainBook> ReadDrains(Store& store, const std::string& instance);

class Drainer final : public HostOrders {
 public:
  Drainer(UplinkService& uplink, Query& query, Store& store, OrderClock& clock, DrainBook book)
      : uplink_(uplink), query_(query), store_(store), clock_(clock), departed_(store), book_(std::move(book)) {}

  absl::StatusOr<cwfabric::v1::FleetDrain> Drain(const cwfabric::v1::FleetDrainRequest& request,
                                                 const api::Caller& caller);
  // It ends though the store cannot forget it; that is tried again then, and the reply says so.
  absl::StatusOr<cwfabric::v1::FleetActionReply> Undrain(const cwfabric::v1::FleetUndrainRequest& request,
                                                         const api::Caller& caller);
  absl::StatusOr<cwfabric::v1::FleetDrainsReply> Drains();
  // Now and then, by the steady clock: ends those whose time is over, and says in the log what became safe.
  void Tick(absl::Time now);
  // By which drain a finding is muted, a phrase; "" = by none.
  std::string MutedBy(const Finding& finding);

  cwfabric::v1::DrainOrders OrdersFor(const std::string& host) override;
  void Take(const std::string& host, const cwfabric::v1::DrainReport& report) override;
  void Forget(const std::string& host) override;

 private:
  struct Crossing {
    absl::Time looked = absl::InfinitePast();
    DrainCrossing who;
  };
  absl::StatusOr<DrainFabric> FabricNow();
  std::string NameOfScope(const cwfabric::v1::FleetUndrainRequest& request);
  // Once per kFabricLasts, where a switch or a host is drained: ports that became known since belong to it.
  void Grow(absl::Time now);
  absl::StatusOr<std::map<std::string, DrainHost>> HostsToAsk();
  absl::StatusOr<std::vector<cwfabric::v1::FleetDrain>> ShowAll();
  // Whether it was there. The store may not forget it at once: "" if it did, or why not.
  std::optional<std::string> End(uint64_t id, const std::string& why);
  void ForgetEnded(absl::Time now);

  UplinkService& uplink_;
  Query& query_;
  Store& store_;
  OrderClock& clock_;
  absl::Time ticked_ = absl::InfinitePast();
  std::map<std::string, std::string> told_;  // drain → its state, as the log has it

  // One act at a time, the store included; taken before the other one.
  std::mutex acts_;
  std::set<uint64_t> ended_;  // that the store has still
  absl::Time forgot_ = absl::InfinitePast(), grew_ = absl::InfinitePast();
  std::mutex departed_mutex_;
  DepartedNics departed_;
  std::mutex mutex_;  // of what follows; never held while the uplink, the query or the store are asked
  DrainBook book_;
  std::map<uint64_t, Crossing> crossing_;
};

}  // namespace cw::fleet
