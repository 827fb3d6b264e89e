// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/incident_client.h"

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/api/fleet_channel.h"
#include "userspace/api/incident.grpc.pb.h"

namespace cw::api {

namespace {

constexpr int kFetchTimes = 10;

}  // namespace

struct IncidentClient::Impl {
  FleetChannel channel;
  absl::Duration timeout;

  absl::StatusOr<std::unique_ptr<v1::Incidents::Stub>> Reach() {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> open = channel.Open();
    if (!open.ok()) return open.status();
    return v1::Incidents::NewStub(*open);
  }
  absl::Status StatusOf(const grpc::Status& status) {
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
      return absl::UnimplementedError("this fleet service knows no incidents: upgrade cwfleetd");
    return channel.StatusOf(status);
  }
};

IncidentClient::IncidentClient(const RemoteAgent& fleet, absl::Duration timeout)
    : impl_(new Impl{{fleet, timeout}, timeout}) {}

IncidentClient::~IncidentClient() = default;

absl::StatusOr<v1::Incident> IncidentClient::Take(const v1::IncidentTakeRequest& request) {
  const auto stub = impl_->Reach();
  if (!stub.ok()) return stub.status();
  grpc::ClientContext context;
  impl_->channel.SetDeadline(context);
  v1::Incident reply;
  if (absl::Status status = impl_->StatusOf((*stub)->Take(&context, request, &reply)); !status.ok()) return status;
  return reply;
}

absl::StatusOr<v1::IncidentListReply> IncidentClient::List() {
  const auto stub = impl_->Reach();
  if (!stub.ok()) return stub.status();
  grpc::ClientContext context;
  impl_->channel.SetDeadline(context);
  v1::IncidentListReply reply;
  if (absl::Status status = impl_->StatusOf((*stub)->List(&context, {}, &reply)); !status.ok()) return status;
  return reply;
}

absl::Status IncidentClient::Fetch(const std::string& id, const std::function<bool(const std::string&)>& piece) {
  const auto stub = impl_->Reach();
  if (!stub.ok()) return stub.status();
  grpc::ClientContext context;
  const absl::Duration most = impl_->timeout * kFetchTimes;
  context.set_deadline(absl::ToChronoTime(absl::Now() + most));
  v1::IncidentFetchRequest request;
  request.set_id(id);
  const auto reader = (*stub)->Fetch(&context, request);
  v1::IncidentBytes bytes;
  size_t got = 0;
  while (reader->Read(&bytes)) {
    got += bytes.bytes().size();
    if (!piece(bytes.bytes())) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return absl::UnavailableError(
        absl::StrFormat("the file did not arrive within %s, %d bytes of it did: fetch it over a faster line",
                        absl::FormatDuration(most), got));
  return impl_->StatusOf(status);
}

}  // namespace cw::api
