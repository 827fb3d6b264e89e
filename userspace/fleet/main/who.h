// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a connection, by its certificate: a host that speaks for itself, or a person with a role.
// Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/caller.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

// Names of a host's certificate. PermissionDenied: it is a person's (it names a role), is over, or was revoked.
absl::StatusOr<std::vector<std::string>> HostNames(const grpc::AuthContext& context, tls::Revocations& revocations);

// PermissionDenied: no role, over, or revoked.
absl::StatusOr<api::Caller> PersonOf(const grpc::ServerContextBase& context, tls::Revocations& revocations);

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace cw::fleet
