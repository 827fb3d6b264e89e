// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a connection, by its certificate: a host that speaks for itself, or a person with a role.
// Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/statusor.h"
#include "userspace/api/caller.h"
#include "userspace/fleet/ingest/metrics_address.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

// By a host's certificate and its connection. PermissionDenied: it is a person's (it names a role), is over, or was
// revoked.
absl::StatusOr<Speaker> HostOf(const grpc::ServerContextBase& context, tls::Revocations& revocations);
// Of gRPC's "ipv4:10.0.0.1:5" or "ipv6:%5Bfd00::1%5D:5"; "": of another kind.
std::string AddressOfPeer(absl::string_view peer);

// PermissionDenied: no role, over, or revoked.
absl::StatusOr<api::Caller> PersonOf(const grpc::ServerContextBase& context, tls::Revocations& revocations);
// PermissionDenied: a role that may only read.
absl::Status MayAct(const api::Caller& who);

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace cw::fleet
