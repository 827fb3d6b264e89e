// SPDX-License-Identifier: Apache-2.0
//
// Drains that operators ordered, what each host is asked for, and what hosts answered. Time comes in as an argument.
// Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/drains/drain_targets.h"

namespace cw::fleet {

// What the book has to know of a host to say whether all is safe.
struct DrainHost {
  bool connected = false;
  bool takes = false;  // it allows drains by the fleet, and knows how
  // It told nothing of its paths since the service began, or since its agent did: they may cross anything.
  bool unheard = false;
  std::string twins = {};  // two agents speak as it (LiveHost::twins): who knows for which of them
};

// Whose traffic may cross it.
struct DrainCrossing {
  std::set<std::string> hosts;
  std::map<std::string, std::string> strangers;  // addresses of peers that are no host of the fleet: who names them
};

class DrainBook {
 public:
  static constexpr size_t kMost = 64, kMostAddresses = 200, kMostWords = 300, kMostHeld = 16, kMostFlowBytes = 100,
                          kMostStrangers = 16;
  static constexpr int64_t kAnswerHoldsNs = 8'000'000'000;  // agents repeat theirs every two seconds
  static constexpr double kMostSeconds = 366.0 * 24 * 3600;

  explicit DrainBook(std::string instance) : instance_(std::move(instance)) {}

  // Of the store, after a restart; `body` as BodyOf made it. InvalidArgument: it cannot be read.
  absl::Status Resume(const std::string& body);
  DrainBook WithoutAnswers() const;
  static std::string BodyOf(const cwfabric::v1::FleetDrain& drain);  // without what hosts answered

  // InvalidArgument: the time that it lasts; AlreadyExists: it is drained; ResourceExhausted: so many drains, or so
  // many ports. Its id.
  absl::StatusOr<uint64_t> Add(const cwfabric::v1::FleetDrainRequest& request, const DrainTargets& targets,
                               const std::string& who, int64_t now_ns);
  // Ports that became known later belong to it, too; who said that it is safe has to say so again. False: nothing is
  // new, or there is no such drain. What is beyond kMostAddresses keeps it from being safe.
  bool Grow(uint64_t id, const DrainTargets& more);
  // Ids by name, kind and name, or id; all with an empty name. NotFound: none.
  absl::StatusOr<std::vector<uint64_t>> Named(const cwfabric::v1::FleetUndrainRequest& request) const;
  void Remove(uint64_t id) { drains_.erase(id); }
  std::vector<uint64_t> Over(int64_t now_ns) const;  // those whose time is over

  // All that this host is asked for, from now on.
  cwfabric::v1::DrainOrders OrdersFor(const std::string& host, int64_t now_ns);
  // Ids that nobody ordered are left out, and so is all beyond the bounds.
  void Take(const std::string& host, const cwfabric::v1::DrainReport& report, int64_t now_ns);
  // Its answers hold no longer: it goes, or comes with a new run. Who had not said that it is safe stays in the way.
  void Forget(const std::string& host);

  bool empty() const { return drains_.empty(); }
  const cwfabric::v1::FleetDrain* Find(uint64_t id) const;
  std::vector<uint64_t> ids() const;
  // With its hosts: those that answered or are asked, and of the others those that are unheard or that `crossing`
  // names, whose paths cross it or may.
  // An answer that is not repeated within kAnswerHolds is none any more.
  cwfabric::v1::FleetDrain Show(uint64_t id, const std::map<std::string, DrainHost>& hosts,
                                const DrainCrossing& crossing, int64_t now_ns) const;
  // By which drain a finding is muted, a phrase; "" = by none. explains: muting.h's, or a test's.
  template <typename Explains>
  std::string MutedBy(const Explains& explains) const {
    for (const auto& [id, entry] : drains_) {
      if (explains(entry.drain)) return NameOf(entry.drain);
    }
    return "";
  }

 private:
  struct Entry {
    cwfabric::v1::FleetDrain drain;  // without hosts
    struct Answer {
      cwfabric::v1::DrainAnswer what;
      int64_t heard_ns = 0;
    };
    std::map<std::string, Answer> answers;  // by host
    std::set<std::string> asked;
    std::set<std::string> left;  // hosts that were asked, and went before they said that it is safe
    size_t uncovered = 0;        // ports that there is no room for
  };
  static std::string NameOf(const cwfabric::v1::FleetDrain& drain);

  const std::string instance_;
  std::map<uint64_t, Entry> drains_;  // by id, which is its start in ns
};

}  // namespace cw::fleet
