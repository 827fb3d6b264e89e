// SPDX-License-Identifier: Apache-2.0
//
// Where Prometheus finds a host's metrics, as the host says it in its Hello; taken only where it is the host's own: a
// host must not make Prometheus read another one under its name. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::fleet {

// Who is at the other end of an uplink.
struct Speaker {
  std::vector<std::string> names;      // DNS names of its certificate, or its common name where it has none
  std::vector<std::string> addresses;  // that the certificate names, too
  std::string from;                    // address that the connection comes from; "" = not known
  std::string issuer, serial;          // of its certificate (tls::CertificateInfo)
  absl::Time not_after = absl::InfiniteFuture();
};

// "HOST:PORT", IPv6 in brackets; ":PORT" means the address that the connection comes from; "" stays "".
// InvalidArgument: it is none. PermissionDenied: it is nothing of the host's, and what to do.
absl::StatusOr<std::string> CheckMetricsAddress(const std::string& told, const Speaker& who);

}  // namespace cw::fleet
