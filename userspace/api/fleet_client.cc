// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/fleet_client.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/api/way.h"

namespace cw::api {

struct FleetClient::Impl {
  std::unique_ptr<Way> way;
  absl::Duration timeout;
  std::unique_ptr<v1::Fleet::Stub> stub = nullptr;

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Fleet::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                             const Request& request) {
    if (absl::Status status = way->Reach(); !status.ok()) return status;
    if (stub == nullptr) {
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = way->Open();
      if (!channel.ok()) return channel.status();
      stub = v1::Fleet::NewStub(*channel);
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return way->Explain(status.error_message(), timeout);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      return absl::UnavailableError(absl::StrFormat("the fleet service on %s did not answer within %s", way->name(),
                                                    absl::FormatDuration(timeout)));
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
      return absl::UnimplementedError("this fleet service is too old to answer that: upgrade cwfleetd");
    if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    return reply;
  }
};

FleetClient::FleetClient(const RemoteAgent& fleet, absl::Duration timeout)
    : impl_(new Impl{.way = RemoteWay(fleet), .timeout = timeout}) {}

FleetClient::~FleetClient() = default;

absl::StatusOr<v1::FleetHostsReply> FleetClient::Hosts(const v1::FleetHostsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Hosts, request);
}

absl::StatusOr<v1::FleetPathsReply> FleetClient::Paths(const v1::FleetPathsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Paths, request);
}

absl::StatusOr<v1::FleetEventsReply> FleetClient::Events(const v1::FleetEventsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Events, request);
}

absl::StatusOr<v1::FleetFindingsReply> FleetClient::Findings(const v1::FleetFindingsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Findings, request);
}

absl::StatusOr<v1::FleetTopologyReply> FleetClient::Topology(const v1::FleetTopologyRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Topology, request);
}

absl::StatusOr<v1::FleetWorkReply> FleetClient::Work(const v1::FleetWorkRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Work, request);
}

absl::StatusOr<v1::FleetJobsReply> FleetClient::Jobs(const v1::FleetJobsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Jobs, request);
}

absl::StatusOr<v1::FleetDiffJobsReply> FleetClient::DiffJobs(const v1::FleetDiffJobsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::DiffJobs, request);
}

absl::StatusOr<v1::FleetDrain> FleetClient::Drain(const v1::FleetDrainRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Drain, request);
}

absl::StatusOr<v1::FleetActionReply> FleetClient::Undrain(const v1::FleetUndrainRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Undrain, request);
}

absl::StatusOr<v1::FleetDrainsReply> FleetClient::Drains() {
  return impl_->Call(&v1::Fleet::Stub::Drains, v1::FleetDrainsRequest());
}

absl::StatusOr<v1::FleetAlertsReply> FleetClient::Alerts(const v1::FleetAlertsRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Alerts, request);
}

absl::StatusOr<v1::FleetActionReply> FleetClient::Mute(const v1::FleetMuteRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Mute, request);
}

absl::StatusOr<v1::FleetActionReply> FleetClient::Unmute(const v1::FleetUnmuteRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Unmute, request);
}

absl::StatusOr<v1::FleetActionReply> FleetClient::Remove(const v1::FleetRemoveRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Remove, request);
}

}  // namespace cw::api
