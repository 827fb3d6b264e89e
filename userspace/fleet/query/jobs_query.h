// SPDX-License-Identifier: Apache-2.0
//
// What hosts' processes do, as answers of the service Fleet: flows, ranks and collectives as hosts told of them, jobs
// over all their hosts, two runs compared. The present is from the live state, the past from the store.
//
// Errors are Status: the store's; NotFound: no such host or job. Time comes in as an argument. Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/jobs/cost.h"
#include "userspace/fleet/jobs/fit.h"
#include "userspace/fleet/jobs/jobs.h"
#include "userspace/fleet/query/query.h"

namespace cw::fleet {

class JobsQuery {
 public:
  static constexpr absl::Duration kRun = absl::Seconds(60);  // a run's figures are of so long

  JobsQuery(Store& store, FleetFile file, Query::EachHost each_host)
      : store_(store), file_(std::move(file)), each_host_(std::move(each_host)), hops_(store) {}

  absl::StatusOr<cwfabric::v1::FleetWorkReply> Work(const cwfabric::v1::FleetWorkRequest& request);
  absl::StatusOr<cwfabric::v1::FleetJobsReply> Jobs(const cwfabric::v1::FleetJobsRequest& request);
  absl::StatusOr<cwfabric::v1::FleetDiffJobsReply> Diff(const cwfabric::v1::FleetDiffJobsRequest& request,
                                                        int64_t now_ns);
  // fit_query.cc. Of now. InvalidArgument: the host is in the job already.
  absl::StatusOr<cwfabric::v1::FleetFitReply> Fit(const cwfabric::v1::FleetFitRequest& request);
  // cost_query.cc. InvalidArgument: the range.
  absl::StatusOr<cwfabric::v1::FleetCostReply> Cost(const cwfabric::v1::FleetCostRequest& request, int64_t now_ns);

 private:
  struct Seen {
    std::string host;
    bool speaks = true;
    std::shared_ptr<const LiveWork> work;  // null: none
    std::shared_ptr<const HopBook::Lists> hops;
  };
  struct View {
    cwfabric::v1::Coverage coverage;
    std::vector<Seen> hosts;     // by name
    std::vector<HostWork> work;  // points into `hosts`
  };
  // at_ns 0: now. `span`: flows of so long before that time, as one; zero: the newest interval.
  absl::StatusOr<View> Look(const std::string& host, int64_t at_ns, absl::Duration span);
  // Switches as the jobs' own ways show them.
  static Topology TopologyOf(const std::vector<HostWork>& hosts, const FleetFile& file);
  absl::Status AddNow(const std::string& host, View& view);
  absl::Status AddThen(const std::string& host, int64_t at_ns, absl::Duration span, View& view);
  absl::StatusOr<std::shared_ptr<const HopBook::Lists>> HopsOf(const std::string& host, const WorkSample& flows);
  absl::StatusOr<std::vector<Finding>> FindingsAt(int64_t at_ns);
  absl::StatusOr<std::vector<Finding>> FindingsWithin(int64_t from_ns, int64_t to_ns);
  absl::Status AddCosts(const std::string& host, int64_t from_ns, int64_t to_ns, const std::string& job, CostBook& book,
                        cwfabric::v1::Coverage& coverage);
  absl::StatusOr<FitQuestion> AskFit(const cwfabric::v1::FleetFitRequest& request, const std::set<std::string>& in_job,
                                     std::vector<Trace>& traces);

  Store& store_;
  const FleetFile file_;
  const Query::EachHost each_host_;
  HopBook hops_;
};

}  // namespace cw::fleet
