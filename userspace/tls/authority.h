// SPDX-License-Identifier: Apache-2.0
//
// A small site's own authority: makes its certificate, hosts' and users' certificates. EC P-256, SHA-256, serial
// numbers of 128 random bits, RFC 5280's extensions. Nothing is kept: who calls stores the texts. Thread rule: any
// thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::tls {

// The key is wiped when it goes.
struct Issued {
  std::string certificate;  // PEM
  std::string key;          // PEM, PKCS 8
  absl::Time not_after;

  Issued() = default;
  Issued(Issued&&) noexcept = default;
  Issued& operator=(Issued&&) noexcept = default;
  ~Issued();
};

struct Life {
  absl::Time now;  // valid from a little earlier, for clocks that are behind
  int days = 0;
};

absl::StatusOr<Issued> MakeAuthority(const std::string& name, const Life& life);

// Both end with their authority's certificate at the latest. InvalidArgument: a name or address that a certificate
// cannot carry; FailedPrecondition: the authority is none, or is over.
// A host: name and further DNS names and addresses by which clients reach it. For servers, and for
// the host as a client of the fleet service; it names no role, so agents take no call by it.
absl::StatusOr<Issued> MakeHost(const Issued& authority, const std::string& name,
                                const std::vector<std::string>& others, const Life& life);
// A user, with a role: read, steer or admin. For clients alone.
absl::StatusOr<Issued> MakeUser(const Issued& authority, const std::string& name, const std::string& role,
                                const Life& life);

// Whether a name may be a file's and a certificate's: 1 to 64 of a-z, A-Z, 0-9, '.', '-', '_', not beginning with '.'
// or '-'.
bool IsPlainName(const std::string& name);

}  // namespace cw::tls
