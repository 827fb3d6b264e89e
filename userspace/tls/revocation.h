// SPDX-License-Identifier: Apache-2.0
//
// Certificates that are not taken any more though they are not over: each authority's list (CRL), one or several in a
// PEM file. A list's next-update time is not looked at: an old list is better than none.
// Thread rule: Revocations any thread; Revoke is pure. Source: RFC 5280, 5.
#pragma once

#include <array>
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

// FailedPrecondition: no list in PEM form, something there that is none, or one that none of the authorities (PEM)
// signed.
absl::StatusOr<Revoked> ReadRevocations(absl::string_view lists, absl::string_view authorities);

// The serial number of a certificate (PEM) of this authority. InvalidArgument: it is none, or another one's.
absl::StatusOr<std::string> SerialOf(const Issued& authority, absl::string_view certificate);

// The authority's list (PEM), with nothing on it, or `list` with one serial number (hexadecimal) more, signed anew.
// InvalidArgument: no such number, or it is on the list; FailedPrecondition: the list is not the authority's.
absl::StatusOr<std::string> EmptyList(const Issued& authority, absl::Time now);
absl::StatusOr<std::string> Revoke(const Issued& authority, absl::string_view list, const std::string& serial,
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
  // Is anything on the list as it is now? A file that is no good is passed over.
  bool any();
  // On the list as it was at the last look.
  bool Contains(const std::string& issuer, const std::string& serial);

 private:
  using Stamps = std::array<FileStamp, 2>;
  absl::Status LoadLocked();

  const Files files_;
  std::mutex mutex_;
  Revoked revoked_;
  std::optional<Stamps> taken_;  // of the list and its authorities as they were last taken
  std::string told_;             // the problem that was said last
};

}  // namespace cw::tls
