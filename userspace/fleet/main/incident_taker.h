// SPDX-License-Identifier: Apache-2.0
//
// Takes incidents: by itself for findings that are severe enough and for collectives that stand, and when people ask.
// Asks hosts for their rings, waits for the end of the span, adds what the store has, and puts the file on the shelf.
// By itself it takes one of a scope in ten minutes, twelve in an hour, and three at a time; a fourth place is people's.
// Of collectives that stand, on a host's word, there are six in an hour, two of one host, and two at a time. What it
// does not take is counted. A thread of its own writes; hosts' streams and people's questions wait for no disk.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/incident.pb.h"
#include "userspace/fleet/findings/findings.h"
#include "userspace/fleet/incidents/collection.h"
#include "userspace/fleet/incidents/shelf.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/query/query.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct IncidentOptions {
  std::optional<Severity> least = Severity::kCritical;  // of findings that it takes by itself; none: no incident
  absl::Duration before = absl::Minutes(5), after = absl::Minutes(5);
  CollectionLimits limits;
  std::string version;
  std::string rules, fabric;  // as their files have them
  CauseRules causes = DefaultCauseRules();
};

class IncidentTaker final : public HostRings {
 public:
  static constexpr size_t kMostAtOnce = 4, kMostHosts = 32, kMostWitnesses = 8;
  static constexpr size_t kMostByItselfInHour = 12, kMostByItselfAtOnce = kMostAtOnce - 1;
  static constexpr size_t kMostStandsInHour = 6, kMostStandsOfHost = 2, kMostStandsAtOnce = 2;
  // Of findings that began before, none is taken by itself.
  static constexpr absl::Duration kRingHolds = absl::Hours(2);
  static constexpr absl::Duration kApart = absl::Minutes(10);  // of one scope

  IncidentTaker(IncidentOptions options, std::unique_ptr<Shelf> shelf, UplinkService& uplink, Store& store,
                Query& query);
  ~IncidentTaker() override;  // what is being taken is finished as far as it is

  // Errors: incident.proto's.
  absl::StatusOr<cwfabric::v1::Incident> Take(const cwfabric::v1::IncidentTakeRequest& request, absl::Time now);
  cwfabric::v1::IncidentListReply List();
  absl::StatusOr<std::string> Find(const std::string& id);  // its file

  // What was found just now, and what a host says stands.
  void Found(const Finding& finding);
  // `hosts`: of its job, as far as they are known.
  void Stands(const HostEvent& event, const std::vector<std::string>& hosts);

  void Now(const std::string& host, const State& state) override;
  bool Take(const std::string& host, const cwfabric::v1::RingAnswer& answer) override;

 private:
  struct News {
    std::string host;
    std::optional<State> state;
    std::optional<cwfabric::v1::RingAnswer> answer;
  };
  struct Wanted {
    std::string scope, reason;
    std::string host;  // on whose word alone; "": a finding
    cwfabric::v1::IncidentTakeRequest request;
    std::optional<Finding> finding;
  };
  struct Known {
    std::string name;
    cwfabric::v1::IncidentHost facts;
    bool connected = false;
  };
  struct ByItself {
    absl::Time at;
    std::string host, id;
  };
  void Run();
  void Work(absl::Time now);
  void Deal(const News& news);
  void TakeByItself(const Wanted& wanted, absl::Time now);
  bool Allows(const Wanted& wanted, absl::Time now);
  bool UnderWay(const std::string& id) const;
  bool HasOf(const std::string& finding) const;
  absl::StatusOr<cwfabric::v1::Incident> Begin(const cwfabric::v1::IncidentTakeRequest& request,
                                               const std::optional<Finding>& finding, absl::Time now);
  absl::StatusOr<cwfabric::v1::Incident> Plan(const cwfabric::v1::IncidentTakeRequest& request,
                                              const std::optional<Finding>& finding, absl::Time now);
  std::vector<Known> KnownHosts();
  absl::Status AddHosts(const std::vector<std::string>& affected, cwfabric::v1::Incident& head);
  void AddFromStore(Collection& collection);
  void Finish(Collection& collection);
  void Complain(const std::string& host, const std::string& why, absl::Time now);
  void Want(Wanted wanted);
  std::optional<Finding> StoredFindingOf(const std::string& id);

  const IncidentOptions options_;
  UplinkService& uplink_;
  Store& store_;
  Query& query_;

  std::mutex mutex_;  // of what follows; may be held while the uplink is asked
  const std::unique_ptr<Shelf> shelf_;
  std::vector<std::unique_ptr<Collection>> taking_;
  std::map<std::string, absl::Time> taken_;        // by scope, of what it took by itself
  std::vector<cwfabric::v1::Incident> finishing_;  // in short
  std::deque<ByItself> by_itself_;
  uint64_t not_taken_ = 0, refused_ = 0;

  std::mutex inbox_mutex_;  // of what follows up to the thread; taken last
  std::condition_variable arrived_;
  std::deque<News> inbox_;
  std::set<uint64_t> requests_;                                 // what hosts are asked for
  std::map<std::pair<std::string, uint64_t>, size_t> waiting_;  // bytes in the inbox, by host and request
  std::deque<Wanted> wanted_;
  std::set<uint64_t> known_;  // findings that were looked at
  uint64_t flooded_ = 0;
  bool end_ = false;
  absl::Time complained_ = absl::InfinitePast();  // the thread's
  std::thread thread_;
};

}  // namespace cw::fleet
