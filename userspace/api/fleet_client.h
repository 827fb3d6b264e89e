// SPDX-License-Identifier: Apache-2.0
//
// A client of the fleet service, over TCP with mutual TLS. One call at a time and object. Errors as client.h's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/client.h"
#include "userspace/api/fleet.pb.h"

namespace cw::api {

class FleetClient {
 public:
  FleetClient(const RemoteAgent& fleet, absl::Duration timeout, Words words = Words::kAsSent);
  ~FleetClient();

  absl::StatusOr<v1::FleetHostsReply> Hosts(const v1::FleetHostsRequest& request = {});
  absl::StatusOr<v1::FleetPathsReply> Paths(const v1::FleetPathsRequest& request);
  absl::StatusOr<v1::FleetEventsReply> Events(const v1::FleetEventsRequest& request);
  absl::StatusOr<v1::FleetFindingsReply> Findings(const v1::FleetFindingsRequest& request);
  absl::StatusOr<v1::FleetTopologyReply> Topology(const v1::FleetTopologyRequest& request);
  absl::StatusOr<v1::FleetWorkReply> Work(const v1::FleetWorkRequest& request);
  absl::StatusOr<v1::FleetJobsReply> Jobs(const v1::FleetJobsRequest& request);
  absl::StatusOr<v1::FleetDiffJobsReply> DiffJobs(const v1::FleetDiffJobsRequest& request);
  absl::StatusOr<v1::FleetCostReply> Cost(const v1::FleetCostRequest& request);
  absl::StatusOr<v1::FleetFitReply> Fit(const v1::FleetFitRequest& request);
  absl::StatusOr<v1::FleetDrain> Drain(const v1::FleetDrainRequest& request);
  absl::StatusOr<v1::FleetActionReply> Undrain(const v1::FleetUndrainRequest& request);
  absl::StatusOr<v1::FleetDrainsReply> Drains();
  absl::StatusOr<v1::FleetAlertsReply> Alerts(const v1::FleetAlertsRequest& request);
  absl::StatusOr<v1::FleetActionReply> Mute(const v1::FleetMuteRequest& request);
  absl::StatusOr<v1::FleetActionReply> Unmute(const v1::FleetUnmuteRequest& request);
  absl::StatusOr<v1::FleetActionReply> Remove(const v1::FleetRemoveRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::api
