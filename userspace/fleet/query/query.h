// SPDX-License-Identifier: Apache-2.0
//
// Answers of the service Fleet: the present from the live state, the past from the store. A host of which an answer
// says nothing is named in it, with the reason.
//
// Errors are Status: the store's; NotFound: no such host. Time comes in as an argument, but for how long a hop list
// that is missing is not asked for again. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/query/hop_book.h"
#include "userspace/fleet/store/store.h"
#include "userspace/fleet/topology/fleet_file.h"

namespace cw::fleet {

// A host's paths, with the hops that they took.
struct SeenPath {
  std::string host;
  PathSample sample;
  const std::vector<Addr>* hops = nullptr;  // null: not known
};

// The fabric as these paths take it, and against what the file says.
cwfabric::v1::FleetTopologyReply MakeTopologyReply(const std::vector<SeenPath>& paths, const FleetFile& file);

// The addresses of each switch, where no single host's traces are enough to keep ports apart (topology.h, Split).
std::vector<std::vector<std::string>> SwitchesNoHostSplits(const std::vector<SeenPath>& paths, const FleetFile& file);

// "NAME: not connected since …", of an answer's coverage.
std::string WhyMissing(const std::string& host, absl::Time last_seen);
absl::Status NoSuchHost(const std::string& host);

class Query {
 public:
  struct FabricNow {
    cwfabric::v1::FleetTopologyReply topology;
    std::vector<std::vector<std::string>> switches;  // as SwitchesNoHostSplits has them
  };
  // Shows each host that was heard of since the service began, by name; none may be kept.
  using EachHost = std::function<void(const std::function<void(const LiveHost&)>&)>;
  static constexpr absl::Duration kReach = absl::Seconds(60);  // older samples are no state any more
  static constexpr uint32_t kMostEvents = 10'000;

  Query(Store& store, std::string instance, FleetFile file, EachHost each_host)
      : store_(store),
        instance_(std::move(instance)),
        file_(std::move(file)),
        each_host_(std::move(each_host)),
        hops_(store) {}

  absl::StatusOr<cwfabric::v1::FleetHostsReply> Hosts(const cwfabric::v1::FleetHostsRequest& request);
  absl::StatusOr<cwfabric::v1::FleetPathsReply> Paths(const cwfabric::v1::FleetPathsRequest& request);
  absl::StatusOr<cwfabric::v1::FleetEventsReply> Events(const cwfabric::v1::FleetEventsRequest& request);
  absl::StatusOr<cwfabric::v1::FleetFindingsReply> Findings(const cwfabric::v1::FleetFindingsRequest& request);
  absl::StatusOr<cwfabric::v1::FleetTopologyReply> Topology(const cwfabric::v1::FleetTopologyRequest& request);
  // What a drain is to cover.
  absl::StatusOr<FabricNow> Fabric();
  // How many hosts are known, and which of them say nothing now; `host`: of this one alone.
  absl::StatusOr<cwfabric::v1::Coverage> CoverageAt(int64_t at_ns);
  absl::StatusOr<cwfabric::v1::Coverage> CoverageNow(const std::string& host = "");
  struct WhoCrosses {
    std::set<std::string> hosts;
    std::map<Addr, std::string> strangers;  // peers that are no NIC of a host that is known: with a host that names it
  };
  // Of each list of addresses the hosts whose paths cross one of them, or may: of all that were heard since the service
  // began, connected or not. All lists in one pass over the hosts, which copies no path.
  absl::StatusOr<std::vector<WhoCrosses>> Crossing(const std::vector<std::vector<Addr>>& lists);

 private:
  using Lists = HopBook::Lists;
  struct View {
    cwfabric::v1::Coverage coverage;
    std::vector<SeenPath> paths;
    std::vector<std::shared_ptr<const Lists>> lists;  // that `paths` points into
  };
  struct HostNow {
    bool connected = false;
    absl::Time last_seen = absl::InfinitePast();
    std::vector<PathSample> paths;
  };
  // All hosts that are known, live or kept, by name: those that were removed since, too, where the past is asked for.
  // Paths: of now, and of the one that is wanted ("": of all) alone.
  absl::StatusOr<std::map<std::string, HostNow>> Known(const std::string& wanted, int64_t at_ns);
  absl::StatusOr<View> Look(const std::string& host, int64_t at_ns);
  absl::StatusOr<cwfabric::v1::FleetHostsReply> HostsAt(const cwfabric::v1::FleetHostsRequest& request);

  Store& store_;
  const std::string instance_;
  const FleetFile file_;
  const EachHost each_host_;
  HopBook hops_;
};

}  // namespace cw::fleet
