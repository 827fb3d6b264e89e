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

template <typename Reply>
grpc::Status Answer(const grpc::ServerContext& context, tls::Revocations& revocations, Reply* out,
                    const std::function<absl::StatusOr<Reply>()>& ask) {
  if (const auto who = PersonOf(context, revocations); !who.ok()) return ToGrpc(who.status());
  absl::StatusOr<Reply> reply = ask();
  if (!reply.ok()) return ToGrpc(reply.status());
  *out = *std::move(reply);
  return grpc::Status::OK;
}

// Of what changes something: who may, what it did, and that it was kept.
template <typename Reply>
grpc::Status Act(const grpc::ServerContext& context, tls::Revocations& revocations, ActsLog& acts,
                 absl::string_view call, const google::protobuf::Message& request, Reply* out,
                 const std::function<absl::StatusOr<Reply>(const api::Caller&)>& act) {
  const absl::StatusOr<api::Caller> who = PersonOf(context, revocations);
  if (!who.ok()) return ToGrpc(who.status());
  const absl::Status may = MayAct(*who);
  absl::StatusOr<Reply> reply = may.ok() ? act(*who) : may;
  acts.Keep(*who, call, request, reply.status());
  if (!reply.ok()) return ToGrpc(reply.status());
  *out = *std::move(reply);
  return grpc::Status::OK;
}

}  // namespace

grpc::Status QueryService::Hosts(grpc::ServerContext* context, const pb::FleetHostsRequest* request,
                                 pb::FleetHostsReply* reply) {
  return Answer<pb::FleetHostsReply>(*context, revocations_, reply, [&] { return query_.Hosts(*request); });
}

grpc::Status QueryService::Paths(grpc::ServerContext* context, const pb::FleetPathsRequest* request,
                                 pb::FleetPathsReply* reply) {
  return Answer<pb::FleetPathsReply>(*context, revocations_, reply, [&] { return query_.Paths(*request); });
}

grpc::Status QueryService::Events(grpc::ServerContext* context, const pb::FleetEventsRequest* request,
                                  pb::FleetEventsReply* reply) {
  return Answer<pb::FleetEventsReply>(*context, revocations_, reply, [&] { return query_.Events(*request); });
}

grpc::Status QueryService::Findings(grpc::ServerContext* context, const pb::FleetFindingsRequest* request,
                                    pb::FleetFindingsReply* reply) {
  return Answer<pb::FleetFindingsReply>(*context, revocations_, reply, [&] { return query_.Findings(*request); });
}

grpc::Status QueryService::Topology(grpc::ServerContext* context, const pb::FleetTopologyRequest* request,
                                    pb::FleetTopologyReply* reply) {
  return Answer<pb::FleetTopologyReply>(*context, revocations_, reply, [&] { return query_.Topology(*request); });
}

grpc::Status QueryService::Work(grpc::ServerContext* context, const pb::FleetWorkRequest* request,
                                pb::FleetWorkReply* reply) {
  return Answer<pb::FleetWorkReply>(*context, revocations_, reply, [&] { return jobs_.Work(*request); });
}

grpc::Status QueryService::Jobs(grpc::ServerContext* context, const pb::FleetJobsRequest* request,
                                pb::FleetJobsReply* reply) {
  return Answer<pb::FleetJobsReply>(*context, revocations_, reply, [&] { return jobs_.Jobs(*request); });
}

grpc::Status QueryService::DiffJobs(grpc::ServerContext* context, const pb::FleetDiffJobsRequest* request,
                                    pb::FleetDiffJobsReply* reply) {
  return Answer<pb::FleetDiffJobsReply>(*context, revocations_, reply,
                                        [&] { return jobs_.Diff(*request, absl::GetCurrentTimeNanos()); });
}

grpc::Status QueryService::Cost(grpc::ServerContext* context, const pb::FleetCostRequest* request,
                                pb::FleetCostReply* reply) {
  return Answer<pb::FleetCostReply>(*context, revocations_, reply,
                                    [&] { return jobs_.Cost(*request, absl::GetCurrentTimeNanos()); });
}

grpc::Status QueryService::Fit(grpc::ServerContext* context, const pb::FleetFitRequest* request,
                               pb::FleetFitReply* reply) {
  return Answer<pb::FleetFitReply>(*context, revocations_, reply, [&] { return jobs_.Fit(*request); });
}

grpc::Status QueryService::Remove(grpc::ServerContext* context, const pb::FleetRemoveRequest* request,
                                  pb::FleetActionReply* reply) {
  return Act<pb::FleetActionReply>(
      *context, revocations_, acts_, "Remove", *request, reply,
      [&](const api::Caller& who) -> absl::StatusOr<pb::FleetActionReply> {
        if (absl::Status status = uplink_.Remove(request->host(), request->force()); !status.ok()) return status;
        pb::FleetActionReply done;
        done.set_effect(absl::StrCat(request->host(),
                                     " is removed: its history stays, and it is known again when its agent connects"));
        spdlog::warn("{} ({}): {}", who.name, who.via, done.effect());
        return done;
      });
}

grpc::Status QueryService::Drain(grpc::ServerContext* context, const pb::FleetDrainRequest* request,
                                 pb::FleetDrain* reply) {
  return Act<pb::FleetDrain>(*context, revocations_, acts_, "Drain", *request, reply,
                             [&](const api::Caller& who) { return drainer_.Drain(*request, who); });
}

grpc::Status QueryService::Undrain(grpc::ServerContext* context, const pb::FleetUndrainRequest* request,
                                   pb::FleetActionReply* reply) {
  return Act<pb::FleetActionReply>(*context, revocations_, acts_, "Undrain", *request, reply,
                                   [&](const api::Caller& who) { return drainer_.Undrain(*request, who); });
}

grpc::Status QueryService::Drains(grpc::ServerContext* context, const pb::FleetDrainsRequest*,
                                  pb::FleetDrainsReply* reply) {
  return Answer<pb::FleetDrainsReply>(*context, revocations_, reply, [&] { return drainer_.Drains(); });
}

grpc::Status QueryService::Alerts(grpc::ServerContext* context, const pb::FleetAlertsRequest* request,
                                  pb::FleetAlertsReply* reply) {
  return Answer<pb::FleetAlertsReply>(*context, revocations_, reply, [&]() -> absl::StatusOr<pb::FleetAlertsReply> {
    return AlertsReplyOf(alerts_.counts(), alerts_.deliveries(), muter_.Mutes(), request->all());
  });
}

grpc::Status QueryService::Mute(grpc::ServerContext* context, const pb::FleetMuteRequest* request,
                                pb::FleetActionReply* reply) {
  return Act<pb::FleetActionReply>(*context, revocations_, acts_, "Mute", *request, reply,
                                   [&](const api::Caller& who) { return muter_.Mute(*request, who); });
}

grpc::Status QueryService::Unmute(grpc::ServerContext* context, const pb::FleetUnmuteRequest* request,
                                  pb::FleetActionReply* reply) {
  return Act<pb::FleetActionReply>(*context, revocations_, acts_, "Unmute", *request, reply,
                                   [&](const api::Caller& who) { return muter_.Unmute(*request, who); });
}

}  // namespace cw::fleet
