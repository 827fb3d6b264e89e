// SPDX-License-Identifier: Apache-2.0
//
// A gRPC server with mutual TLS, of a site's files.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "userspace/model/regular_file.h"
#include "userspace/tls/certificate.h"

namespace cw::tls {

inline std::string PemIn(const std::string& path) { return ReadRegularFile(path).value_or(""); }

// Takes clients of the site's authority alone.
inline std::shared_ptr<grpc::ServerCredentials> ServerOf(const Files& files) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = PemIn(files.ca);
  options.pem_key_cert_pairs = {{PemIn(files.key), PemIn(files.cert)}};
  return grpc::SslServerCredentials(options);
}

}  // namespace cw::tls
