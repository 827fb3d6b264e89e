// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_format.h"
#include "userspace/api/cwfabric.grpc.pb.h"
#include "userspace/api/way.h"

namespace cw::api {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace

struct Client::Impl {
  explicit Impl(std::unique_ptr<Way> given, absl::Duration patience) : way(std::move(given)), timeout(patience) {}

  const std::unique_ptr<Way> way;
  const absl::Duration timeout;
  std::unique_ptr<v1::Agent::Stub> stub;

  absl::Status Open() {
    if (absl::Status status = way->Reach(); !status.ok() || stub != nullptr) return status;
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = way->Open();
    if (!channel.ok()) return channel.status();
    stub = v1::Agent::NewStub(*channel);
    return absl::OkStatus();
  }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Agent::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                             const Request& request) {
    if (absl::Status status = Open(); !status.ok()) return status;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return way->Explain(status.error_message(), timeout);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(
          absl::StrFormat("the agent on %s did not answer within %s; it may be stopped or "
                          "overloaded",
                          way->name(), absl::FormatDuration(timeout)));
    }
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }
};

Client::Client(const std::string& socket_path, absl::Duration timeout)
    : impl_(std::make_unique<Impl>(SocketWay(socket_path), timeout)) {}

Client::Client(const RemoteAgent& agent, absl::Duration timeout)
    : impl_(std::make_unique<Impl>(RemoteWay(agent), timeout)) {}

Client::~Client() = default;

absl::StatusOr<v1::StatusReply> Client::Status() { return impl_->Call(&v1::Agent::Stub::Status, v1::StatusRequest()); }

absl::StatusOr<v1::DoctorReply> Client::Doctor() { return impl_->Call(&v1::Agent::Stub::Doctor, v1::DoctorRequest()); }

absl::StatusOr<v1::CountersReply> Client::Counters() {
  return impl_->Call(&v1::Agent::Stub::Counters, v1::CountersRequest());
}

absl::StatusOr<v1::ClockReply> Client::Clock() {
  absl::StatusOr<v1::ClockReply> reply = impl_->Call(&v1::Agent::Stub::Clock, v1::ClockRequest());
  // gRPC's own answer where the agent does not know the call.
  if (absl::IsUnimplemented(reply.status()) && reply.status().message().empty()) {
    return absl::UnimplementedError("this agent is older than cwctl and has no fleet clock to show; update it");
  }
  return reply;
}

absl::StatusOr<v1::PathsReply> Client::Paths(const v1::PathsRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Paths, request);
}

absl::StatusOr<v1::QpsReply> Client::Qps(const v1::QpsRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Qps, request);
}

absl::StatusOr<v1::OwdReply> Client::Owd(const v1::OwdRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Owd, request);
}

absl::StatusOr<v1::LinksReply> Client::Links(const v1::LinksRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Links, request);
}

absl::StatusOr<v1::SteerShowReply> Client::SteerShow(const v1::SteerShowRequest& request) {
  return impl_->Call(&v1::Agent::Stub::SteerShow, request);
}

absl::StatusOr<v1::ActionReply> Client::SteerSet(const v1::SteerSetRequest& request) {
  return impl_->Call(&v1::Agent::Stub::SteerSet, request);
}

absl::StatusOr<v1::ActionReply> Client::SteerClear(const v1::SteerClearRequest& request) {
  return impl_->Call(&v1::Agent::Stub::SteerClear, request);
}

absl::StatusOr<v1::ActionReply> Client::SteerLock(const v1::SteerLockRequest& request) {
  return impl_->Call(&v1::Agent::Stub::SteerLock, request);
}

absl::StatusOr<v1::WhyReply> Client::Why(const v1::WhyRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Why, request);
}

absl::StatusOr<v1::ActionReply> Client::Drain(const v1::DrainRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Drain, request);
}

absl::StatusOr<v1::ActionReply> Client::Undrain(const v1::UndrainRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Undrain, request);
}

absl::StatusOr<v1::DrainsReply> Client::Drains() { return impl_->Call(&v1::Agent::Stub::Drains, v1::DrainsRequest()); }

absl::StatusOr<v1::NicsReply> Client::Nics() { return impl_->Call(&v1::Agent::Stub::Nics, v1::NicsRequest()); }

absl::StatusOr<v1::ActionReply> Client::Label(const v1::LabelRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Label, request);
}

absl::StatusOr<v1::LabelsReply> Client::Labels() { return impl_->Call(&v1::Agent::Stub::Labels, v1::LabelsRequest()); }

absl::StatusOr<v1::ActionReply> Client::SetMode(const v1::SetModeRequest& request) {
  return impl_->Call(&v1::Agent::Stub::SetMode, request);
}

absl::StatusOr<v1::ActionReply> Client::BreakerReset() {
  return impl_->Call(&v1::Agent::Stub::BreakerReset, v1::BreakerResetRequest());
}

absl::StatusOr<v1::ActionReply> Client::Off(const v1::OffRequest& request) {
  return impl_->Call(&v1::Agent::Stub::Off, request);
}

absl::StatusOr<v1::ListJobsReply> Client::ListJobs(const v1::ListJobsRequest& request) {
  return impl_->Call(&v1::Agent::Stub::ListJobs, request);
}

absl::StatusOr<v1::ListCollectivesReply> Client::ListCollectives(const v1::ListCollectivesRequest& request) {
  return impl_->Call(&v1::Agent::Stub::ListCollectives, request);
}

absl::Status Client::Events(const v1::EventsRequest& request, const std::function<bool(const v1::Event&)>& each) {
  if (absl::Status status = impl_->Open(); !status.ok()) return status;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::Event>> reader = impl_->stub->Events(&context, request);
  v1::Event event;
  bool wanted = true;
  while (wanted && reader->Read(&event)) wanted = each(event);
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    const absl::Status why = impl_->way->Explain(status.error_message(), impl_->timeout);
    if (absl::IsPermissionDenied(why)) return why;
    return absl::UnavailableError(absl::StrFormat("the agent on %s ended", impl_->way->name()));
  }
  return FromGrpc(status);
}

}  // namespace cw::api
