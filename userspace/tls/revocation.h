// SPDX-License-Identifier: Apache-2.0
//
// Certificates that are not taken any more though they are not over: each authority's list (CRL), one or several in a
// PEM file. A list's next-update time is not looked at: an old list is better than none.
// Thread rule: Revocations any thread; Revoke is pure. Source: RFC 5280, 5.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/tls/authority.h"
#include "userspace/tls/certificate.h"
#include "userspace/tls/watch.h"

namespace cw::tls {

// Issuer (RFC 2253) and serial number (hexadecimal).
using Revoked = std::set<std::pair<std::string, std::string>>;

// FailedPrecondition: no list in PEM form, or one that none of the authorities (PEM) signed.
absl::StatusOr<Revoked> ReadRevocations(absl::string_view lists, absl::string_view authorities);

// The authority's list (PEM; "": none yet) with one certificate more, signed anew. InvalidArgument: the certificate is
// not this authority's, or is on the list; FailedPrecondition: the list is not.
absl::StatusOr<std::string> Revoke(const Issued& authority, absl::string_view list, absl::string_view certificate,
                                   absl::Time now);

// The list in files.crl, looked at anew when the file changes.
class Revocations {
 public:
  explicit Revocations(Files files) : files_(std::move(files)) {}

  // What is wrong with the file; ok without one.
  absl::Status Load();

  struct Answer {
    bool revoked = false;
    absl::Status problem;  // the file changed and is no good: the list before it goes on; said once
  };
  // pem: a client's certificate, first.
  Answer Look(absl::string_view pem);

 private:
  absl::Status LoadLocked();

  const Files files_;
  std::mutex mutex_;
  Revoked revoked_;
  std::optional<FileStamp> taken_;  // of the file as it was last read
};

}  // namespace cw::tls
