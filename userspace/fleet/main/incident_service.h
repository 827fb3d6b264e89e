// SPDX-License-Identifier: Apache-2.0
//
// The service Incidents over gRPC: who asks is looked at, then IncidentTaker answers.
#pragma once

#include "userspace/api/incident.grpc.pb.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

class IncidentService final : public cwfabric::v1::Incidents::Service {
 public:
  IncidentService(IncidentTaker& taker, tls::Revocations& revocations) : taker_(taker), revocations_(revocations) {}

  grpc::Status Take(grpc::ServerContext* context, const cwfabric::v1::IncidentTakeRequest* request,
                    cwfabric::v1::Incident* reply) override;
  grpc::Status List(grpc::ServerContext* context, const cwfabric::v1::IncidentListRequest* request,
                    cwfabric::v1::IncidentListReply* reply) override;
  grpc::Status Fetch(grpc::ServerContext* context, const cwfabric::v1::IncidentFetchRequest* request,
                     grpc::ServerWriter<cwfabric::v1::IncidentBytes>* writer) override;

 private:
  IncidentTaker& taker_;
  tls::Revocations& revocations_;
};

}  // namespace cw::fleet
