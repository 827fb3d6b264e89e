// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/fleet_client.h"

#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/api/fleet_channel.h"

namespace cw::api {

struct FleetClient::Impl {
  FleetChannel channel;
  Words words = Words::kAsSent;
  std::unique_ptr<v1::Fleet::Stub> stub = nullptr;

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Fleet::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                             const Request& request) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> open = channel.Open();
    if (!open.ok()) return open.status();
    if (stub == nullptr) stub = v1::Fleet::NewStub(*open);
    grpc::ClientContext context;
    channel.SetDeadline(context);
    Reply reply;
    const absl::Status status = channel.StatusOf((stub.get()->*method)(&context, request, &reply));
    if (!status.ok()) return status;
    if (words == Words::kPrintable) MakePrintable(reply);
    return reply;
  }
};

FleetClient::FleetClient(const RemoteAgent& fleet, absl::Duration timeout, Words words)
    : impl_(new Impl{{fleet, timeout}, words}) {}

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

absl::StatusOr<v1::FleetCostReply> FleetClient::Cost(const v1::FleetCostRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Cost, request);
}

absl::StatusOr<v1::FleetFitReply> FleetClient::Fit(const v1::FleetFitRequest& request) {
  return impl_->Call(&v1::Fleet::Stub::Fit, request);
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
