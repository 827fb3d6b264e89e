// SPDX-License-Identifier: Apache-2.0
//
// The API's calls, as one caller who may make them: requests checked and completed, then handed to the AgentView.
// Who may is not looked at here: guard.h. Thread rule: any thread; one object for all callers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "userspace/api/agent_view.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.grpc.pb.h"

namespace cw::api {

grpc::Status ToGrpc(const absl::Status& status);

class Calls {
 public:
  explicit Calls(AgentView& view) : view_(view) {}

  void Stop() { stopping_ = true; }  // ends followers

  grpc::Status Status(const Caller& caller, const v1::StatusRequest* request, v1::StatusReply* reply);
  grpc::Status Doctor(const Caller& caller, const v1::DoctorRequest* request, v1::DoctorReply* reply);
  grpc::Status Counters(const Caller& caller, const v1::CountersRequest* request, v1::CountersReply* reply);
  grpc::Status Clock(const Caller& caller, const v1::ClockRequest* request, v1::ClockReply* reply);
  grpc::Status Paths(const Caller& caller, const v1::PathsRequest* request, v1::PathsReply* reply);
  grpc::Status Qps(const Caller& caller, const v1::QpsRequest* request, v1::QpsReply* reply);
  grpc::Status Owd(const Caller& caller, const v1::OwdRequest* request, v1::OwdReply* reply);
  grpc::Status Links(const Caller& caller, const v1::LinksRequest* request, v1::LinksReply* reply);
  grpc::Status Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                      grpc::ServerWriter<v1::Event>* writer);
  grpc::Status SteerShow(const Caller& caller, const v1::SteerShowRequest* request, v1::SteerShowReply* reply);
  grpc::Status SteerSet(const Caller& caller, const v1::SteerSetRequest* request, v1::ActionReply* reply);
  grpc::Status SteerClear(const Caller& caller, const v1::SteerClearRequest* request, v1::ActionReply* reply);
  grpc::Status SteerLock(const Caller& caller, const v1::SteerLockRequest* request, v1::ActionReply* reply);
  grpc::Status Why(const Caller& caller, const v1::WhyRequest* request, v1::WhyReply* reply);
  grpc::Status Drain(const Caller& caller, const v1::DrainRequest* request, v1::ActionReply* reply);
  grpc::Status Undrain(const Caller& caller, const v1::UndrainRequest* request, v1::ActionReply* reply);
  grpc::Status Drains(const Caller& caller, const v1::DrainsRequest* request, v1::DrainsReply* reply);
  grpc::Status SetMode(const Caller& caller, const v1::SetModeRequest* request, v1::ActionReply* reply);
  grpc::Status ListJobs(const Caller& caller, const v1::ListJobsRequest* request, v1::ListJobsReply* reply);
  grpc::Status ListCollectives(const Caller& caller, const v1::ListCollectivesRequest* request,
                               v1::ListCollectivesReply* reply);
  grpc::Status Nics(const Caller& caller, const v1::NicsRequest* request, v1::NicsReply* reply);
  grpc::Status Label(const Caller& caller, const v1::LabelRequest* request, v1::ActionReply* reply);
  grpc::Status Labels(const Caller& caller, const v1::LabelsRequest* request, v1::LabelsReply* reply);
  grpc::Status Off(const Caller& caller, const v1::OffRequest* request, v1::ActionReply* reply);
  grpc::Status BreakerReset(const Caller& caller, const v1::BreakerResetRequest* request, v1::ActionReply* reply);

 private:
  absl::Status CheckRemote(const std::string& remote);
  absl::Status ResolveInPlace(std::string* flow);
  absl::Status ResolveNeeded(std::string* flow);
  grpc::Status Follow(grpc::ServerContext& context, const v1::EventsRequest& request,
                      grpc::ServerWriter<v1::Event>& writer);

  AgentView& view_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> followers_{0};
};

}  // namespace cw::api
