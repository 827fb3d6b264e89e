// SPDX-License-Identifier: Apache-2.0
//
// The gRPC service: every call passes here, is looked up in the table of roles, told of where it changes something or
// is refused, and goes on to Calls. Thread rule: as gRPC calls, any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/api/audit.h"
#include "userspace/api/calls.h"

namespace cw::api {

// Decides and tells; one for all callers.
class Gate {
 public:
  explicit Gate(AgentView& view) : view_(view) {}

  // PermissionDenied, with what is wanted.
  absl::Status Admit(const Caller& caller, absl::string_view method, const std::string& request);
  void Done(const Caller& caller, absl::string_view method, const std::string& request, const absl::Status& result);
  // Somebody who may call nothing at all.
  void TurnedAway(const Caller& caller, const std::string& why);

 private:
  void Refuse(const Caller& caller, absl::string_view method, const std::string& request, const std::string& why);

  AgentView& view_;
  RefusalLimiter limiter_;
};

class GuardedService final : public v1::Agent::Service {
 public:
  // Who calls: one and the same for a connection whose owner is known, or as the call's context says.
  // PermissionDenied: nobody who may call.
  using Identify = std::function<absl::StatusOr<Caller>(const grpc::ServerContext& context)>;

  GuardedService(Calls& calls, Gate& gate, Identify identify)
      : calls_(calls), gate_(gate), identify_(std::move(identify)) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request, v1::StatusReply* reply) override {
    return Pass(context, "Status", &Calls::Status, request, reply);
  }
  grpc::Status Doctor(grpc::ServerContext* context, const v1::DoctorRequest* request, v1::DoctorReply* reply) override {
    return Pass(context, "Doctor", &Calls::Doctor, request, reply);
  }
  grpc::Status Counters(grpc::ServerContext* context, const v1::CountersRequest* request,
                        v1::CountersReply* reply) override {
    return Pass(context, "Counters", &Calls::Counters, request, reply);
  }
  grpc::Status Clock(grpc::ServerContext* context, const v1::ClockRequest* request, v1::ClockReply* reply) override {
    return Pass(context, "Clock", &Calls::Clock, request, reply);
  }
  grpc::Status Paths(grpc::ServerContext* context, const v1::PathsRequest* request, v1::PathsReply* reply) override {
    return Pass(context, "Paths", &Calls::Paths, request, reply);
  }
  grpc::Status Qps(grpc::ServerContext* context, const v1::QpsRequest* request, v1::QpsReply* reply) override {
    return Pass(context, "Qps", &Calls::Qps, request, reply);
  }
  grpc::Status Owd(grpc::ServerContext* context, const v1::OwdRequest* request, v1::OwdReply* reply) override {
    return Pass(context, "Owd", &Calls::Owd, request, reply);
  }
  grpc::Status Links(grpc::ServerContext* context, const v1::LinksRequest* request, v1::LinksReply* reply) override {
    return Pass(context, "Links", &Calls::Links, request, reply);
  }
  grpc::Status SteerShow(grpc::ServerContext* context, const v1::SteerShowRequest* request,
                         v1::SteerShowReply* reply) override {
    return Pass(context, "SteerShow", &Calls::SteerShow, request, reply);
  }
  grpc::Status SteerSet(grpc::ServerContext* context, const v1::SteerSetRequest* request,
                        v1::ActionReply* reply) override {
    return Pass(context, "SteerSet", &Calls::SteerSet, request, reply);
  }
  grpc::Status SteerClear(grpc::ServerContext* context, const v1::SteerClearRequest* request,
                          v1::ActionReply* reply) override {
    return Pass(context, "SteerClear", &Calls::SteerClear, request, reply);
  }
  grpc::Status SteerLock(grpc::ServerContext* context, const v1::SteerLockRequest* request,
                         v1::ActionReply* reply) override {
    return Pass(context, "SteerLock", &Calls::SteerLock, request, reply);
  }
  grpc::Status Why(grpc::ServerContext* context, const v1::WhyRequest* request, v1::WhyReply* reply) override {
    return Pass(context, "Why", &Calls::Why, request, reply);
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request, v1::ActionReply* reply) override {
    return Pass(context, "Drain", &Calls::Drain, request, reply);
  }
  grpc::Status Undrain(grpc::ServerContext* context, const v1::UndrainRequest* request,
                       v1::ActionReply* reply) override {
    return Pass(context, "Undrain", &Calls::Undrain, request, reply);
  }
  grpc::Status Drains(grpc::ServerContext* context, const v1::DrainsRequest* request, v1::DrainsReply* reply) override {
    return Pass(context, "Drains", &Calls::Drains, request, reply);
  }
  grpc::Status SetMode(grpc::ServerContext* context, const v1::SetModeRequest* request,
                       v1::ActionReply* reply) override {
    return Pass(context, "SetMode", &Calls::SetMode, request, reply);
  }
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsReply* reply) override {
    return Pass(context, "ListJobs", &Calls::ListJobs, request, reply);
  }
  grpc::Status ListCollectives(grpc::ServerContext* context, const v1::ListCollectivesRequest* request,
                               v1::ListCollectivesReply* reply) override {
    return Pass(context, "ListCollectives", &Calls::ListCollectives, request, reply);
  }
  grpc::Status Nics(grpc::ServerContext* context, const v1::NicsRequest* request, v1::NicsReply* reply) override {
    return Pass(context, "Nics", &Calls::Nics, request, reply);
  }
  grpc::Status Label(grpc::ServerContext* context, const v1::LabelRequest* request, v1::ActionReply* reply) override {
    return Pass(context, "Label", &Calls::Label, request, reply);
  }
  grpc::Status Labels(grpc::ServerContext* context, const v1::LabelsRequest* request, v1::LabelsReply* reply) override {
    return Pass(context, "Labels", &Calls::Labels, request, reply);
  }
  grpc::Status Off(grpc::ServerContext* context, const v1::OffRequest* request, v1::ActionReply* reply) override {
    return Pass(context, "Off", &Calls::Off, request, reply);
  }
  grpc::Status BreakerReset(grpc::ServerContext* context, const v1::BreakerResetRequest* request,
                            v1::ActionReply* reply) override {
    return Pass(context, "BreakerReset", &Calls::BreakerReset, request, reply);
  }
  grpc::Status Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                      grpc::ServerWriter<v1::Event>* writer) override;

 private:
  template <typename Request, typename Reply>
  grpc::Status Pass(grpc::ServerContext* context, const char* method,
                    grpc::Status (Calls::*call)(const Caller&, const Request*, Reply*), const Request* request,
                    Reply* reply) {
    const absl::StatusOr<Caller> caller = Enter(*context, method, *request);
    if (!caller.ok()) return ToGrpc(caller.status());
    const grpc::Status status = (calls_.*call)(*caller, request, reply);
    gate_.Done(*caller, method, request->ShortDebugString(),
               {static_cast<absl::StatusCode>(status.error_code()), status.error_message()});
    return status;
  }
  absl::StatusOr<Caller> Enter(const grpc::ServerContext& context, const char* method,
                               const google::protobuf::Message& request);

  Calls& calls_;
  Gate& gate_;
  const Identify identify_;
};

}  // namespace cw::api
