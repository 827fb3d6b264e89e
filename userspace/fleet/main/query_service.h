// SPDX-License-Identifier: Apache-2.0
//
// The service Fleet over gRPC: who asks is looked at, then Query answers; what acts is kept with who.
#pragma once

#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/main/acts_log.h"
#include "userspace/fleet/main/drainer.h"
#include "userspace/fleet/main/muter.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/query/jobs_query.h"
#include "userspace/fleet/query/query.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

class QueryService final : public cwfabric::v1::Fleet::Service {
 public:
  QueryService(Query& query, JobsQuery& jobs, UplinkService& uplink, Drainer& drainer, Muter& muter,
               const fleet::Alerts& alerts, tls::Revocations& revocations, ActsLog& acts)
      : query_(query),
        jobs_(jobs),
        uplink_(uplink),
        drainer_(drainer),
        muter_(muter),
        alerts_(alerts),
        revocations_(revocations),
        acts_(acts) {}

  grpc::Status Hosts(grpc::ServerContext* context, const cwfabric::v1::FleetHostsRequest* request,
                     cwfabric::v1::FleetHostsReply* reply) override;
  grpc::Status Paths(grpc::ServerContext* context, const cwfabric::v1::FleetPathsRequest* request,
                     cwfabric::v1::FleetPathsReply* reply) override;
  grpc::Status Events(grpc::ServerContext* context, const cwfabric::v1::FleetEventsRequest* request,
                      cwfabric::v1::FleetEventsReply* reply) override;
  grpc::Status Findings(grpc::ServerContext* context, const cwfabric::v1::FleetFindingsRequest* request,
                        cwfabric::v1::FleetFindingsReply* reply) override;
  grpc::Status Topology(grpc::ServerContext* context, const cwfabric::v1::FleetTopologyRequest* request,
                        cwfabric::v1::FleetTopologyReply* reply) override;
  grpc::Status Work(grpc::ServerContext* context, const cwfabric::v1::FleetWorkRequest* request,
                    cwfabric::v1::FleetWorkReply* reply) override;
  grpc::Status Jobs(grpc::ServerContext* context, const cwfabric::v1::FleetJobsRequest* request,
                    cwfabric::v1::FleetJobsReply* reply) override;
  grpc::Status DiffJobs(grpc::ServerContext* context, const cwfabric::v1::FleetDiffJobsRequest* request,
                        cwfabric::v1::FleetDiffJobsReply* reply) override;
  grpc::Status Cost(grpc::ServerContext* context, const cwfabric::v1::FleetCostRequest* request,
                    cwfabric::v1::FleetCostReply* reply) override;
  grpc::Status Fit(grpc::ServerContext* context, const cwfabric::v1::FleetFitRequest* request,
                   cwfabric::v1::FleetFitReply* reply) override;
  grpc::Status Remove(grpc::ServerContext* context, const cwfabric::v1::FleetRemoveRequest* request,
                      cwfabric::v1::FleetActionReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const cwfabric::v1::FleetDrainRequest* request,
                     cwfabric::v1::FleetDrain* reply) override;
  grpc::Status Undrain(grpc::ServerContext* context, const cwfabric::v1::FleetUndrainRequest* request,
                       cwfabric::v1::FleetActionReply* reply) override;
  grpc::Status Drains(grpc::ServerContext* context, const cwfabric::v1::FleetDrainsRequest* request,
                      cwfabric::v1::FleetDrainsReply* reply) override;
  grpc::Status Alerts(grpc::ServerContext* context, const cwfabric::v1::FleetAlertsRequest* request,
                      cwfabric::v1::FleetAlertsReply* reply) override;
  grpc::Status Mute(grpc::ServerContext* context, const cwfabric::v1::FleetMuteRequest* request,
                    cwfabric::v1::FleetActionReply* reply) override;
  grpc::Status Unmute(grpc::ServerContext* context, const cwfabric::v1::FleetUnmuteRequest* request,
                      cwfabric::v1::FleetActionReply* reply) override;

 private:
  Query& query_;
  JobsQuery& jobs_;
  UplinkService& uplink_;
  Drainer& drainer_;
  Muter& muter_;
  const fleet::Alerts& alerts_;
  tls::Revocations& revocations_;
  ActsLog& acts_;
};

}  // namespace cw::fleet
