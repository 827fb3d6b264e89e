// SPDX-License-Identifier: Apache-2.0
//
// What slow and standing collectives cost a job: how much longer they took than is usual for their like, times the GPUs
// that waited for them (one of each rank), by what they waited for. A collective that several ranks tell of counts
// once, as the rank has it that lost most; a send or receive at each end. Where the network held it back, the place is
// the finding at that time that its queue pair's way crosses; without one it is the way itself. How much of it acting
// would have saved follows from what the hosts' agents decided and did not do by their mode (dry_moves.h).
//
// Numbers come from hosts' processes: what is absurd is cut, and what is too much left out. Each collective is reduced
// at once. Pure; one thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/jobs/dry_moves.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

class CostBook {
 public:
  static constexpr size_t kMostCollectives = 100'000, kMostRows = 200, kMostWhere = 200;

  // findings: of the range that is asked for.
  CostBook(std::vector<Finding> findings, Topology topology);

  // It was told within (from, to]. `decided`: by that host's agent. false: there is no room for more.
  bool Add(const std::string& host, const cwfabric::v1::Collective& c, int64_t from_ns, int64_t to_ns,
           const DryMoves& decided);
  // Rows by what weighs most, the last of them what there was no row for; no coverage.
  cwfabric::v1::FleetCostReply Sum() const;

 private:
  // Communicator, function, its number; of a send or receive: peer, host and process, and when it began.
  using Name = std::tuple<std::string, std::string, uint64_t, int, std::string, uint32_t, int64_t>;
  struct Place {
    std::string where;
    uint64_t finding = 0;  // 0: none
    bool network = true;
    auto operator<=>(const Place&) const = default;
  };
  struct Lost {
    double ns = 0, avoidable_ns = 0;
    int gpus = 0;
    std::string job;
    Place place;
  };
  Place PlaceOf(const std::string& host, const cwfabric::v1::Collective& c, int64_t begin_ns, int64_t end_ns) const;

  const std::vector<Finding> findings_;  // by start
  const Topology topology_;
  std::map<Name, Lost> worst_;
};

}  // namespace cw::fleet
