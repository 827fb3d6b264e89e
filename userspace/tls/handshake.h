// SPDX-License-Identifier: Apache-2.0
//
// Why a server does not take us, or we do not take it: one connection of our own, whose errors are told apart. For
// clients whose library only says "unavailable". Each step may take `patience`.
// The caller ignores SIGPIPE. Thread rule: any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/tls/certificate.h"

namespace cw::tls {

struct HostPort {
  std::string host;  // name or address, without brackets
  std::string port;
};

// "node17:9478", "10.0.0.5:9478", "[fd00::5]:9478". InvalidArgument: what is wanted.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);

// Ok: the handshake was made and the server went on to speak. Unavailable: nobody answers there.
// PermissionDenied: the server does not take our certificate. FailedPrecondition: we do not take the server's, or ours
// is not worth sending (over, of another authority, no client's).
absl::Status TryHandshake(const HostPort& server, const Material& own, absl::Duration patience);

}  // namespace cw::tls
