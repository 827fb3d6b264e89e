// SPDX-License-Identifier: Apache-2.0
//
// The API's verbs as one caller who may call them asks: requests checked and completed, then handed to the AgentView.
// Who may is not looked at here: guard.h. Thread rule: any thread; one object for all callers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/caller.h"
#include "userspace/api/cwfabric.grpc.pb.h"
#include "userspace/api/seats.h"

namespace cw::api {

grpc::Status ToGrpc(const absl::Status& status);

// Hands on every verb as it is.
class PassedOn : public AgentApi {
 public:
  explicit PassedOn(AgentApi& to) : to_(to) {}
  CW_VERBS(CW_OVERRIDE_VERB)

 private:
  AgentApi& to_;
};

class Calls final : public PassedOn {
 public:
  explicit Calls(AgentView& view) : PassedOn(view), view_(view) {}

  void Stop() { stopping_ = true; }  // ends followers

  // Those whose requests want a look first, or that are made of others.
  CW_MADE_VERBS(CW_OVERRIDE_VERB)
  CW_OVERRIDE_VERB(Status, StatusRequest, StatusReply, )
  CW_OVERRIDE_VERB(Paths, PathsRequest, PathsReply, )
  CW_OVERRIDE_VERB(Qps, QpsRequest, QpsReply, )
  CW_OVERRIDE_VERB(Links, LinksRequest, LinksReply, )
  CW_OVERRIDE_VERB(SteerSet, SteerSetRequest, ActionReply, )
  CW_OVERRIDE_VERB(SteerClear, SteerClearRequest, ActionReply, )
  CW_OVERRIDE_VERB(SteerLock, SteerLockRequest, ActionReply, )
  CW_OVERRIDE_VERB(Drain, DrainRequest, ActionReply, )
  CW_OVERRIDE_VERB(Undrain, UndrainRequest, ActionReply, )
  CW_OVERRIDE_VERB(Label, LabelRequest, ActionReply, )
  CW_OVERRIDE_VERB(SetMode, SetModeRequest, ActionReply, )
  CW_OVERRIDE_VERB(Off, OffRequest, ActionReply, )

  // still_may: asked each second while it follows; its error ends the stream.
  grpc::Status Events(grpc::ServerContext* context, const v1::EventsRequest& request,
                      grpc::ServerWriter<v1::Event>& writer, const std::string& caller,
                      const std::function<absl::Status()>& still_may);

 private:
  absl::Status CheckRemote(const std::string& remote);
  absl::Status ResolveInPlace(std::string* flow);
  absl::Status ResolveNeeded(std::string* flow);
  absl::Status Follow(grpc::ServerContext* context, const v1::EventsRequest& request,
                      grpc::ServerWriter<v1::Event>& writer, const std::function<absl::Status()>& still_may);

  AgentView& view_;
  std::atomic<bool> stopping_{false};
  Seats readers_{{.each = 8, .all = 16, .what = "readers of events"}};  // each holds a thread
};

}  // namespace cw::api
