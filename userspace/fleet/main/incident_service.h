// SPDX-License-Identifier: Apache-2.0
//
// The service Incidents over gRPC: who asks is looked at, then IncidentTaker answers.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/api/incident.grpc.pb.h"
#include "userspace/fleet/main/acts_log.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

class IncidentService final : public cwfabric::v1::Incidents::Service {
 public:
  IncidentService(IncidentTaker& taker, tls::Revocations& revocations, ActsLog& acts)
      : taker_(taker), revocations_(revocations), acts_(acts) {}

  grpc::Status Take(grpc::ServerContext* context, const cwfabric::v1::IncidentTakeRequest* request,
                    cwfabric::v1::Incident* reply) override;
  grpc::Status List(grpc::ServerContext* context, const cwfabric::v1::IncidentListRequest* request,
                    cwfabric::v1::IncidentListReply* reply) override;
  grpc::Status Fetch(grpc::ServerContext* context, const cwfabric::v1::IncidentFetchRequest* request,
                     grpc::ServerWriter<cwfabric::v1::IncidentBytes>* writer) override;

 private:
  struct Fetching {
    std::string who;
    absl::Time wrote;  // when the client took a piece last
  };
  absl::StatusOr<cwfabric::v1::Incident> TakeBy(const api::Caller& who,
                                                const cwfabric::v1::IncidentTakeRequest& request);
  // ResourceExhausted: so many are fetched already, by who or by all.
  absl::Status Begin(grpc::ServerContext* context, const std::string& who);
  void Wrote(grpc::ServerContext* context);
  void End(grpc::ServerContext* context);

  IncidentTaker& taker_;
  tls::Revocations& revocations_;
  ActsLog& acts_;
  std::mutex mutex_;  // of all below
  std::map<grpc::ServerContext*, Fetching> fetches_;
};

}  // namespace cw::fleet
