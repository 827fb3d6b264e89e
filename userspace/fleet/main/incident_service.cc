// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/incident_service.h"

#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/fleet/main/who.h"
#include "userspace/model/steady.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr size_t kPieceBytes = 256 << 10;
constexpr int kMostOfOne = 2;
constexpr size_t kMost = 8;
constexpr absl::Duration kStalled = absl::Seconds(30);

}  // namespace

absl::StatusOr<pb::Incident> IncidentService::TakeBy(const api::Caller& who, const pb::IncidentTakeRequest& request) {
  if (absl::Status may = MayAct(who); !may.ok()) return may;
  pb::IncidentTakeRequest wanted = request;
  wanted.set_reason(request.reason().empty() ? who.name : request.reason() + ", asked by " + who.name);
  return taker_.Take(wanted, absl::Now());
}

grpc::Status IncidentService::Take(grpc::ServerContext* context, const pb::IncidentTakeRequest* request,
                                   pb::Incident* reply) {
  const absl::StatusOr<api::Caller> who = PersonOf(*context, revocations_);
  if (!who.ok()) return ToGrpc(who.status());
  absl::StatusOr<pb::Incident> begun = TakeBy(*who, *request);
  acts_.Keep(*who, "IncidentTake", *request, begun.status());
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

// Each takes a thread. Who has read nothing for a while goes where another one comes.
absl::Status IncidentService::Begin(grpc::ServerContext* context, const std::string& who) {
  const std::lock_guard lock(mutex_);
  const absl::Time now = SteadyNow();
  int its = 0;
  for (auto& [other, fetch] : fetches_) {
    if (now - fetch.wrote > kStalled) other->TryCancel();
    its += fetch.who == who;
  }
  if (its >= kMostOfOne)
    return absl::ResourceExhaustedError(
        absl::StrCat(who, " fetches ", its, " incidents already; wait for one of them"));
  if (fetches_.size() >= kMost)
    return absl::ResourceExhaustedError(
        absl::StrCat(fetches_.size(), " incidents are fetched already; try again soon"));
  fetches_[context] = {who, now};
  return absl::OkStatus();
}

void IncidentService::Wrote(grpc::ServerContext* context) {
  const std::lock_guard lock(mutex_);
  fetches_[context].wrote = SteadyNow();
}

void IncidentService::End(grpc::ServerContext* context) {
  const std::lock_guard lock(mutex_);
  fetches_.erase(context);
}

grpc::Status IncidentService::Fetch(grpc::ServerContext* context, const pb::IncidentFetchRequest* request,
                                    grpc::ServerWriter<pb::IncidentBytes>* writer) {
  const absl::StatusOr<api::Caller> who = PersonOf(*context, revocations_);
  if (!who.ok()) return ToGrpc(who.status());
  if (absl::Status begun = Begin(context, who->name); !begun.ok()) return ToGrpc(begun);
  const absl::Cleanup end = [&] { End(context); };
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
    Wrote(context);
  }
  return grpc::Status::OK;
}

}  // namespace cw::fleet
