// SPDX-License-Identifier: Apache-2.0
//
// The API over TCP: mutual TLS from files that may change while the server runs, and who a call's certificate names.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/caller.h"
#include "userspace/tls/certificate.h"

namespace cw::api {

// Clients without a certificate of tls_ca's authorities are not let in. Each connection is made with the files as they
// are then; `tell` hears of new certificates and of files that are no good (from gRPC's threads).
// Errors: the files' (tls::Load).
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ReloadingCredentials(
    const tls::Files& files, std::function<void(const ApiEvent&)> tell);

// What is told of a certificate that the server took: until when it holds. Pure.
ApiEvent CertificateTaken(const tls::CertificateInfo& info, absl::Time now);

// By the client's certificate (PEM) and address. PermissionDenied: it is over by now, or names no role; told names
// whom it is about all the same. Pure.
struct Identified {
  Caller caller;  // without a role when `status` is not ok
  absl::Status status;
};
Identified IdentifyCertificate(const std::string& pem, const std::string& peer, absl::Time now);

}  // namespace cw::api
