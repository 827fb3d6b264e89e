// SPDX-License-Identifier: Apache-2.0
//
// The service Incidents over gRPC: who asks is looked at, then IncidentTaker answers.
#pragma once

#include "absl/status/statusor.h"
#include "userspace/api/call_queue.h"
#include "userspace/api/incident.grpc.pb.h"
#include "userspace/api/seats.h"
#include "userspace/fleet/main/acts_log.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/fleet/main/who.h"

namespace cw::fleet {

using Incidents = cwfabric::v1::Incidents;
// Replies wait for nobody's thread; the one stream has Seats.
class IncidentService final
    : public Incidents::WithCallbackMethod_Take<Incidents::WithCallbackMethod_List<Incidents::Service>> {
 public:
  IncidentService(IncidentTaker& taker, Callers& callers, api::CallQueue& queue, ActsLog& acts)
      : taker_(taker), callers_(callers), queue_(queue), acts_(acts) {}

  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context, const cwfabric::v1::IncidentTakeRequest* request,
                                 cwfabric::v1::Incident* reply) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const cwfabric::v1::IncidentListRequest* request,
                                 cwfabric::v1::IncidentListReply* reply) override;
  grpc::Status Fetch(grpc::ServerContext* context, const cwfabric::v1::IncidentFetchRequest* request,
                     grpc::ServerWriter<cwfabric::v1::IncidentBytes>* writer) override;

 private:
  absl::StatusOr<cwfabric::v1::Incident> TakeBy(const api::Caller& who,
                                                const cwfabric::v1::IncidentTakeRequest& request);

  IncidentTaker& taker_;
  Callers& callers_;
  api::CallQueue& queue_;
  ActsLog& acts_;
  api::Seats fetches_{{.each = 2, .all = 8, .what = "fetches of incidents"}};
};

}  // namespace cw::fleet
