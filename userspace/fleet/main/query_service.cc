// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/query_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/main/alerts_reply.h"
#include "userspace/fleet/main/who.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

}  // namespace

template <typename Reply, typename Ask>
grpc::ServerUnaryReactor* QueryService::Answer(grpc::CallbackServerContext* context, Reply* out, Ask ask) {
  const absl::StatusOr<api::Caller> who = callers_.PersonOf(*context);
  if (!who.ok()) return api::QueuedReply::Refuse(who.status());
  return api::QueuedReply::Queue(queue_, context, who->name, [out, ask = std::move(ask)] {
    absl::StatusOr<Reply> reply = ask();
    if (!reply.ok()) return ToGrpc(reply.status());
    *out = *std::move(reply);
    return grpc::Status::OK;
  });
}

template <typename Request, typename Reply, typename Do>
grpc::ServerUnaryReactor* QueryService::Act(grpc::CallbackServerContext* context, const char* call,
                                            const Request* request, Reply* out, Do act) {
  const absl::StatusOr<api::Caller> who = callers_.PersonOf(*context);
  if (!who.ok()) return api::QueuedReply::Refuse(who.status());
  return api::QueuedReply::Queue(queue_, context, who->name,
                                 [this, who = *who, call, request, out, act = std::move(act)] {
                                   const absl::Status may = MayAct(who);
                                   absl::StatusOr<Reply> reply = may.ok() ? act(who) : may;
                                   acts_.Keep(who, call, *request, reply.status());
                                   if (!reply.ok()) return ToGrpc(reply.status());
                                   *out = *std::move(reply);
                                   return grpc::Status::OK;
                                 });
}

grpc::ServerUnaryReactor* QueryService::Hosts(grpc::CallbackServerContext* context,
                                              const pb::FleetHostsRequest* request, pb::FleetHostsReply* reply) {
  return Answer(context, reply, [this, request] { return query_.Hosts(*request); });
}

grpc::ServerUnaryReactor* QueryService::Paths(grpc::CallbackServerContext* context,
                                              const pb::FleetPathsRequest* request, pb::FleetPathsReply* reply) {
  return Answer(context, reply, [this, request] { return query_.Paths(*request); });
}

grpc::ServerUnaryReactor* QueryService::Events(grpc::CallbackServerContext* context,
                                               const pb::FleetEventsRequest* request, pb::FleetEventsReply* reply) {
  return Answer(context, reply, [this, request] { return query_.Events(*request); });
}

grpc::ServerUnaryReactor* QueryService::Findings(grpc::CallbackServerContext* context,
                                                 const pb::FleetFindingsRequest* request,
                                                 pb::FleetFindingsReply* reply) {
  return Answer(context, reply, [this, request] { return query_.Findings(*request); });
}

grpc::ServerUnaryReactor* QueryService::Topology(grpc::CallbackServerContext* context,
                                                 const pb::FleetTopologyRequest* request,
                                                 pb::FleetTopologyReply* reply) {
  return Answer(context, reply, [this, request] { return query_.Topology(*request); });
}

grpc::ServerUnaryReactor* QueryService::Work(grpc::CallbackServerContext* context, const pb::FleetWorkRequest* request,
                                             pb::FleetWorkReply* reply) {
  return Answer(context, reply, [this, request] { return jobs_.Work(*request); });
}

grpc::ServerUnaryReactor* QueryService::Jobs(grpc::CallbackServerContext* context, const pb::FleetJobsRequest* request,
                                             pb::FleetJobsReply* reply) {
  return Answer(context, reply, [this, request] { return jobs_.Jobs(*request); });
}

grpc::ServerUnaryReactor* QueryService::DiffJobs(grpc::CallbackServerContext* context,
                                                 const pb::FleetDiffJobsRequest* request,
                                                 pb::FleetDiffJobsReply* reply) {
  return Answer(context, reply, [this, request] { return jobs_.Diff(*request, absl::GetCurrentTimeNanos()); });
}

grpc::ServerUnaryReactor* QueryService::Cost(grpc::CallbackServerContext* context, const pb::FleetCostRequest* request,
                                             pb::FleetCostReply* reply) {
  return Answer(context, reply, [this, request] { return jobs_.Cost(*request, absl::GetCurrentTimeNanos()); });
}

grpc::ServerUnaryReactor* QueryService::Fit(grpc::CallbackServerContext* context, const pb::FleetFitRequest* request,
                                            pb::FleetFitReply* reply) {
  return Answer(context, reply, [this, request] { return jobs_.Fit(*request); });
}

grpc::ServerUnaryReactor* QueryService::Remove(grpc::CallbackServerContext* context,
                                               const pb::FleetRemoveRequest* request, pb::FleetActionReply* reply) {
  return Act(context, "Remove", request, reply,
             [this, request](const api::Caller& who) -> absl::StatusOr<pb::FleetActionReply> {
               if (absl::Status status = uplink_.Remove(request->host(), request->force()); !status.ok()) return status;
               pb::FleetActionReply done;
               done.set_effect(absl::StrCat(
                   request->host(), " is removed: its history stays, and it is known again when its agent connects"));
               spdlog::warn("{} ({}): {}", who.name, who.via, done.effect());
               return done;
             });
}

grpc::ServerUnaryReactor* QueryService::Drain(grpc::CallbackServerContext* context,
                                              const pb::FleetDrainRequest* request, pb::FleetDrain* reply) {
  return Act(context, "Drain", request, reply,
             [this, request](const api::Caller& who) { return drainer_.Drain(*request, who); });
}

grpc::ServerUnaryReactor* QueryService::Undrain(grpc::CallbackServerContext* context,
                                                const pb::FleetUndrainRequest* request, pb::FleetActionReply* reply) {
  return Act(context, "Undrain", request, reply,
             [this, request](const api::Caller& who) { return drainer_.Undrain(*request, who); });
}

grpc::ServerUnaryReactor* QueryService::Drains(grpc::CallbackServerContext* context, const pb::FleetDrainsRequest*,
                                               pb::FleetDrainsReply* reply) {
  return Answer(context, reply, [this] { return drainer_.Drains(); });
}

grpc::ServerUnaryReactor* QueryService::Alerts(grpc::CallbackServerContext* context,
                                               const pb::FleetAlertsRequest* request, pb::FleetAlertsReply* reply) {
  return Answer(context, reply, [this, request]() -> absl::StatusOr<pb::FleetAlertsReply> {
    return AlertsReplyOf(alerts_.counts(), alerts_.deliveries(), muter_.Mutes(), request->all());
  });
}

grpc::ServerUnaryReactor* QueryService::Mute(grpc::CallbackServerContext* context, const pb::FleetMuteRequest* request,
                                             pb::FleetActionReply* reply) {
  return Act(context, "Mute", request, reply,
             [this, request](const api::Caller& who) { return muter_.Mute(*request, who); });
}

grpc::ServerUnaryReactor* QueryService::Unmute(grpc::CallbackServerContext* context,
                                               const pb::FleetUnmuteRequest* request, pb::FleetActionReply* reply) {
  return Act(context, "Unmute", request, reply,
             [this, request](const api::Caller& who) { return muter_.Unmute(*request, who); });
}

}  // namespace cw::fleet
