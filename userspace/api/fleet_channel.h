// SPDX-License-Identifier: Apache-2.0
//
// What clients of the fleet service's several services share: the way there, and what a failed call means. One call at
// a time and object.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/client.h"
#include "userspace/api/endpoint.h"

namespace cw::api {

class FleetChannel {
 public:
  FleetChannel(const RemoteAgent& fleet, absl::Duration timeout)
      : endpoint_(RemoteEndpoint(fleet)), timeout_(timeout) {}

  // Opened by the first call.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open();
  void SetDeadline(grpc::ClientContext& context) const;
  absl::Status StatusOf(const grpc::Status& status);

 private:
  std::unique_ptr<Endpoint> endpoint_;
  absl::Duration timeout_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace cw::api
