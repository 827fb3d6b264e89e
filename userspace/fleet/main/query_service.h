// SPDX-License-Identifier: Apache-2.0
//
// The service Fleet over gRPC: who asks is looked at, then Query answers on threads of the queue; what acts is kept
// with who.
#pragma once

#include "userspace/api/call_queue.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/main/acts_log.h"
#include "userspace/fleet/main/drainer.h"
#include "userspace/fleet/main/muter.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/main/who.h"
#include "userspace/fleet/query/jobs_query.h"
#include "userspace/fleet/query/query.h"

namespace cw::fleet {

class QueryService final : public cwfabric::v1::Fleet::CallbackService {
 public:
  QueryService(Query& query, JobsQuery& jobs, UplinkService& uplink, Drainer& drainer, Muter& muter,
               const fleet::Alerts& alerts, Callers& callers, api::CallQueue& queue, ActsLog& acts)
      : query_(query),
        jobs_(jobs),
        uplink_(uplink),
        drainer_(drainer),
        muter_(muter),
        alerts_(alerts),
        callers_(callers),
        queue_(queue),
        acts_(acts) {}

  grpc::ServerUnaryReactor* Hosts(grpc::CallbackServerContext* context, const cwfabric::v1::FleetHostsRequest* request,
                                  cwfabric::v1::FleetHostsReply* reply) override;
  grpc::ServerUnaryReactor* Paths(grpc::CallbackServerContext* context, const cwfabric::v1::FleetPathsRequest* request,
                                  cwfabric::v1::FleetPathsReply* reply) override;
  grpc::ServerUnaryReactor* Events(grpc::CallbackServerContext* context,
                                   const cwfabric::v1::FleetEventsRequest* request,
                                   cwfabric::v1::FleetEventsReply* reply) override;
  grpc::ServerUnaryReactor* Findings(grpc::CallbackServerContext* context,
                                     const cwfabric::v1::FleetFindingsRequest* request,
                                     cwfabric::v1::FleetFindingsReply* reply) override;
  grpc::ServerUnaryReactor* Topology(grpc::CallbackServerContext* context,
                                     const cwfabric::v1::FleetTopologyRequest* request,
                                     cwfabric::v1::FleetTopologyReply* reply) override;
  grpc::ServerUnaryReactor* Work(grpc::CallbackServerContext* context, const cwfabric::v1::FleetWorkRequest* request,
                                 cwfabric::v1::FleetWorkReply* reply) override;
  grpc::ServerUnaryReactor* Jobs(grpc::CallbackServerContext* context, const cwfabric::v1::FleetJobsRequest* request,
                                 cwfabric::v1::FleetJobsReply* reply) override;
  grpc::ServerUnaryReactor* DiffJobs(grpc::CallbackServerContext* context,
                                     const cwfabric::v1::FleetDiffJobsRequest* request,
                                     cwfabric::v1::FleetDiffJobsReply* reply) override;
  grpc::ServerUnaryReactor* Cost(grpc::CallbackServerContext* context, const cwfabric::v1::FleetCostRequest* request,
                                 cwfabric::v1::FleetCostReply* reply) override;
  grpc::ServerUnaryReactor* Fit(grpc::CallbackServerContext* context, const cwfabric::v1::FleetFitRequest* request,
                                cwfabric::v1::FleetFitReply* reply) override;
  grpc::ServerUnaryReactor* Remove(grpc::CallbackServerContext* context,
                                   const cwfabric::v1::FleetRemoveRequest* request,
                                   cwfabric::v1::FleetActionReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const cwfabric::v1::FleetDrainRequest* request,
                                  cwfabric::v1::FleetDrain* reply) override;
  grpc::ServerUnaryReactor* Undrain(grpc::CallbackServerContext* context,
                                    const cwfabric::v1::FleetUndrainRequest* request,
                                    cwfabric::v1::FleetActionReply* reply) override;
  grpc::ServerUnaryReactor* Drains(grpc::CallbackServerContext* context,
                                   const cwfabric::v1::FleetDrainsRequest* request,
                                   cwfabric::v1::FleetDrainsReply* reply) override;
  grpc::ServerUnaryReactor* Alerts(grpc::CallbackServerContext* context,
                                   const cwfabric::v1::FleetAlertsRequest* request,
                                   cwfabric::v1::FleetAlertsReply* reply) override;
  grpc::ServerUnaryReactor* Mute(grpc::CallbackServerContext* context, const cwfabric::v1::FleetMuteRequest* request,
                                 cwfabric::v1::FleetActionReply* reply) override;
  grpc::ServerUnaryReactor* Unmute(grpc::CallbackServerContext* context,
                                   const cwfabric::v1::FleetUnmuteRequest* request,
                                   cwfabric::v1::FleetActionReply* reply) override;

 private:
  // ask() is a StatusOr<Reply>.
  template <typename Reply, typename Ask>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Reply* out, Ask ask);
  // Of what changes something: who may, what it did, and that it was kept.
  // act(who) is a StatusOr<Reply>.
  template <typename Request, typename Reply, typename Do>
  grpc::ServerUnaryReactor* Act(grpc::CallbackServerContext* context, const char* call, const Request* request,
                                Reply* out, Do act);

  Query& query_;
  JobsQuery& jobs_;
  UplinkService& uplink_;
  Drainer& drainer_;
  Muter& muter_;
  const fleet::Alerts& alerts_;
  Callers& callers_;
  api::CallQueue& queue_;
  ActsLog& acts_;
};

}  // namespace cw::fleet
