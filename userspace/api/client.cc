// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_format.h"
#include "userspace/api/cwfabric.grpc.pb.h"
#include "userspace/api/endpoint.h"

namespace cw::api {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace

struct Client::Impl {
  Impl(std::unique_ptr<Endpoint> given, absl::Duration patience, Words what)
      : endpoint(std::move(given)), timeout(patience), words(what) {}

  const std::unique_ptr<Endpoint> endpoint;
  const absl::Duration timeout;
  const Words words;
  std::unique_ptr<v1::Agent::Stub> stub;

  absl::Status Open() {
    if (absl::Status status = endpoint->Reach(); !status.ok() || stub != nullptr) return status;
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = endpoint->Open();
    if (!channel.ok()) return channel.status();
    stub = v1::Agent::NewStub(*channel);
    return absl::OkStatus();
  }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(const char* verb,
                             grpc::Status (v1::Agent::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                             const Request& request) {
    if (absl::Status status = Open(); !status.ok()) return status;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return endpoint->Explain(status.error_message(), timeout);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(
          absl::StrFormat("the agent on %s did not answer within %s; it may be stopped or "
                          "overloaded",
                          endpoint->name(), absl::FormatDuration(timeout)));
    }
    // gRPC's own answer where the agent does not know the call.
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty())
      return absl::UnimplementedError(absl::StrFormat(
          "the agent on %s is older than this and does not know %s; update it", endpoint->name(), verb));
    if (!status.ok()) return FromGrpc(status);
    if (words == Words::kPrintable) MakePrintable(reply);
    return reply;
  }
};

Client::Client(const std::string& socket_path, absl::Duration timeout, Words words)
    : impl_(std::make_unique<Impl>(SocketEndpoint(socket_path), timeout, words)) {}

Client::Client(const RemoteAgent& agent, absl::Duration timeout, Words words)
    : impl_(std::make_unique<Impl>(RemoteEndpoint(agent), timeout, words)) {}

Client::~Client() = default;

#define CW_CALL_VERB(name, Request, Reply, role)                                      \
  absl::StatusOr<v1::Reply> Client::name(const v1::Request& request, const Caller&) { \
    return impl_->Call(#name, &v1::Agent::Stub::name, request);                       \
  }
CW_VERBS(CW_CALL_VERB)

absl::Status Client::Events(const v1::EventsRequest& request, const std::function<bool(const v1::Event&)>& each) {
  if (absl::Status status = impl_->Open(); !status.ok()) return status;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::Event>> reader = impl_->stub->Events(&context, request);
  v1::Event event;
  bool wanted = true;
  while (wanted && reader->Read(&event)) {
    if (impl_->words == Words::kPrintable) MakePrintable(event);
    wanted = each(event);
  }
  if (!wanted) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!wanted) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    const absl::Status why = impl_->endpoint->Explain(status.error_message(), impl_->timeout);
    if (absl::IsPermissionDenied(why)) return why;
    return absl::UnavailableError(absl::StrFormat("the agent on %s ended", impl_->endpoint->name()));
  }
  return FromGrpc(status);
}

}  // namespace cw::api
