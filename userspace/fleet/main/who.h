// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a connection, by its certificate: a host that speaks for itself, or a person with a role.
// Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/statusor.h"
#include "userspace/api/caller.h"
#include "userspace/api/grpc_door.h"
#include "userspace/fleet/ingest/metrics_address.h"
#include "userspace/tls/revocation.h"

namespace cw::fleet {

class Callers {
 public:
  explicit Callers(const tls::Files& files) : revocations_(files) {}

  // By a host's certificate and its connection. PermissionDenied: it is a person's (it names a role), is over, or was
  // revoked.
  absl::StatusOr<Speaker> HostOf(const grpc::ServerContextBase& context);
  // PermissionDenied: no role, over, or revoked.
  absl::StatusOr<api::Caller> PersonOf(const grpc::ServerContextBase& context);

  tls::Revocations& revocations() { return revocations_; }
  // Which hears whose connections are known. Before the first one; it outlives them.
  void SetDoor(api::GrpcDoor* door) { door_ = door; }

 private:
  void Known(const grpc::ServerContextBase& context, const std::string& pem);

  tls::Revocations revocations_;
  api::GrpcDoor* door_ = nullptr;
};

// PermissionDenied: a role that may only read.
absl::Status MayAct(const api::Caller& who);

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace cw::fleet
