// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/incident_service.h"

#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kPieceBytes = 256 << 10;

}  // namespace

absl::StatusOr<pb::Incident> IncidentService::TakeBy(const api::Caller& who, const pb::IncidentTakeRequest& request) {
  if (absl::Status may = MayAct(who); !may.ok()) return may;
  pb::IncidentTakeRequest wanted = request;
  wanted.set_reason(request.reason().empty() ? who.name : request.reason() + ", asked by " + who.name);
  return taker_.Take(wanted, absl::Now());
}

grpc::ServerUnaryReactor* IncidentService::Take(grpc::CallbackServerContext* context,
                                                const pb::IncidentTakeRequest* request, pb::Incident* reply) {
  const absl::StatusOr<api::Caller> who = callers_.PersonOf(*context);
  if (!who.ok()) return api::QueuedReply::Refuse(who.status());
  return api::QueuedReply::Queue(queue_, context, who->name, [this, who = *who, request, reply] {
    absl::StatusOr<pb::Incident> begun = TakeBy(who, *request);
    acts_.Keep(who, "IncidentTake", *request, begun.status());
    if (!begun.ok()) return ToGrpc(begun.status());
    spdlog::warn("{} ({}) takes incident {}", who.name, who.via, begun->id());
    *reply = *std::move(begun);
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* IncidentService::List(grpc::CallbackServerContext* context, const pb::IncidentListRequest*,
                                                pb::IncidentListReply* reply) {
  const absl::StatusOr<api::Caller> who = callers_.PersonOf(*context);
  if (!who.ok()) return api::QueuedReply::Refuse(who.status());
  return api::QueuedReply::Queue(queue_, context, who->name, [this, reply] {
    *reply = taker_.List();
    return grpc::Status::OK;
  });
}

grpc::Status IncidentService::Fetch(grpc::ServerContext* context, const pb::IncidentFetchRequest* request,
                                    grpc::ServerWriter<pb::IncidentBytes>* writer) {
  const absl::StatusOr<api::Caller> who = callers_.PersonOf(*context);
  if (!who.ok()) return ToGrpc(who.status());
  if (absl::Status taken = fetches_.Take(context, who->name); !taken.ok()) return ToGrpc(taken);
  const absl::Cleanup leave = [&] { fetches_.Leave(context); };
  const absl::StatusOr<std::string> path = taker_.Find(request->id());
  if (!path.ok()) return ToGrpc(path.status());
  std::ifstream file(*path, std::ios::binary);  // it may be removed meanwhile, and is read to its end all the same
  if (!file) return ToGrpc(absl::NotFoundError("incident " + request->id() + " was removed just now"));
  pb::IncidentBytes piece;
  while (file) {
    std::string& bytes = *piece.mutable_bytes();
    bytes.resize(kPieceBytes);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(file.gcount()));
    if (!bytes.empty() && !fetches_.Write(context, *writer, piece)) break;
  }
  return grpc::Status::OK;
}

}  // namespace cw::fleet
