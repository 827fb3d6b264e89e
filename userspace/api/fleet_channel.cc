// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/fleet_channel.h"

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace cw::api {

absl::StatusOr<std::shared_ptr<grpc::Channel>> FleetChannel::Open() {
  if (absl::Status status = endpoint_->Reach(); !status.ok()) return status;
  if (channel_ != nullptr) return channel_;
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = endpoint_->Open();
  if (channel.ok()) channel_ = *channel;
  return channel;
}

void FleetChannel::SetDeadline(grpc::ClientContext& context) const {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
}

absl::Status FleetChannel::StatusOf(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return endpoint_->Explain(status.error_message(), timeout_);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return absl::UnavailableError(absl::StrFormat("the fleet service on %s did not answer within %s", endpoint_->name(),
                                                  absl::FormatDuration(timeout_)));
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
    return absl::UnimplementedError("this fleet service is too old to answer that: upgrade cwfleetd");
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace cw::api
