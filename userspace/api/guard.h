// SPDX-License-Identifier: Apache-2.0
//
// The gRPC service: every call passes here, is looked up in the table of roles, told of where it changes something or
// is refused, and goes on to Calls. Thread rule: as gRPC calls, any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/acts/acts_file.h"
#include "userspace/api/audit.h"
#include "userspace/api/call_queue.h"
#include "userspace/api/calls.h"

namespace cw::api {

// Decides and tells; one for all callers.
class Gate {
 public:
  // acts_file: where it is kept, too; "": nowhere.
  explicit Gate(AgentView& view, std::string acts_file = "") : view_(view), acts_(std::move(acts_file)) {}

  // PermissionDenied, with what is wanted.
  absl::Status Admit(const Caller& caller, absl::string_view method, const std::string& request);
  void Done(const Caller& caller, absl::string_view method, const std::string& request, const absl::Status& result);
  // Somebody who may call nothing at all.
  void TurnedAway(const Caller& caller, const std::string& why);

 private:
  void Refuse(const Caller& caller, absl::string_view method, const std::string& request, const std::string& why);
  void Keep(const acts::Act& act);

  AgentView& view_;
  const acts::ActsFile acts_;
  std::atomic<bool> acts_failed_{false};
  RefusalLimiter limiter_;
};

#define CW_BY_CALLBACK(name, Request, Reply, role) v1::Agent::WithCallbackMethod_##name <
#define CW_CLOSE(name, Request, Reply, role) >
// Replies wait for nobody's thread; the one stream has Seats.
using AgentService = CW_VERBS(CW_BY_CALLBACK) v1::Agent::Service CW_VERBS(CW_CLOSE);
#undef CW_BY_CALLBACK
#undef CW_CLOSE

class GuardedService final : public AgentService {
 public:
  // Who calls: one and the same for a connection whose owner is known, or as the call's context says.
  // PermissionDenied: nobody who may call.
  using Identify = std::function<absl::StatusOr<Caller>(const grpc::ServerContextBase& context)>;

  GuardedService(Calls& calls, Gate& gate, CallQueue& queue, Identify identify)
      : calls_(calls), gate_(gate), queue_(queue), identify_(std::move(identify)) {}

#define CW_SERVE_VERB(name, Request, Reply, role)                                                                    \
  grpc::ServerUnaryReactor* name(grpc::CallbackServerContext* context, const v1::Request* request, v1::Reply* reply) \
      override {                                                                                                     \
    return Pass<v1::Request, v1::Reply>(context, #name, &AgentApi::name, *request, reply);                           \
  }
  CW_VERBS(CW_SERVE_VERB)
#undef CW_SERVE_VERB
  grpc::Status Events(grpc::ServerContext* context, const v1::EventsRequest* request,
                      grpc::ServerWriter<v1::Event>* writer) override;

 private:
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Pass(grpc::CallbackServerContext* context, const char* method,
                                 absl::StatusOr<Reply> (AgentApi::*call)(const Request&, const Caller&),
                                 const Request& request, Reply* reply) {
    absl::StatusOr<Caller> caller = Enter(*context, method, request);
    if (!caller.ok()) return QueuedReply::Refuse(caller.status());
    const std::string name = CountedAs(*caller);
    return QueuedReply::Queue(queue_, context, name,
                              [this, method, call, &request, reply, caller = *std::move(caller)] {
                                absl::StatusOr<Reply> result = (calls_.*call)(request, caller);
                                gate_.Done(caller, method, request.ShortDebugString(), result.status());
                                if (result.ok()) reply->Swap(&*result);
                                return ToGrpc(result.status());
                              });
  }
  static std::string CountedAs(const Caller& caller);
  absl::StatusOr<Caller> Enter(const grpc::ServerContextBase& context, const char* method,
                               const google::protobuf::Message& request);

  Calls& calls_;
  Gate& gate_;
  CallQueue& queue_;
  const Identify identify_;
};

}  // namespace cw::api
