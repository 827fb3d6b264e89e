// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/incident_service.h"

#include <fstream>

#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/main/who.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kPieceBytes = 256 << 10;

}  // namespace

grpc::Status IncidentService::Take(grpc::ServerContext* context, const pb::IncidentTakeRequest* request,
                                   pb::Incident* reply) {
  const auto who = PersonOf(*context, revocations_, api::Role::kSteer);
  if (!who.ok()) return ToGrpc(who.status());
  pb::IncidentTakeRequest wanted = *request;
  wanted.set_reason(request->reason().empty() ? who->name : request->reason() + ", asked by " + who->name);
  absl::StatusOr<pb::Incident> begun = taker_.Take(wanted, absl::Now());
  if (!begun.ok()) return ToGrpc(begun.status());
  spdlog::warn("{} ({}) takes incident {}", who->name, who->via, begun->id());
  *reply = *std::move(begun);
  return grpc::Status::OK;
}

grpc::Status IncidentService::List(grpc::ServerContext* context, const pb::IncidentListRequest*,
                                   pb::IncidentListReply* reply) {
  if (const auto who = PersonOf(*context, revocations_); !who.ok()) return ToGrpc(who.status());
  *reply = taker_.List();
  return grpc::Status::OK;
}

grpc::Status IncidentService::Fetch(grpc::ServerContext* context, const pb::IncidentFetchRequest* request,
                                    grpc::ServerWriter<pb::IncidentBytes>* writer) {
  if (const auto who = PersonOf(*context, revocations_); !who.ok()) return ToGrpc(who.status());
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
    if (!bytes.empty() && !writer->Write(piece)) break;
  }
  return grpc::Status::OK;
}

}  // namespace cw::fleet
