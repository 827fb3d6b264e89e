// SPDX-License-Identifier: Apache-2.0
//
// X.509 certificates as the API uses them: read, checked against their authority, loaded from files with their key.
// A client's role is a URI in its certificate's alternative names, cwfabric://role/ROLE (docs/decisions.md).
// Errors say which file and what to do, never what a key file holds. Thread rule: plain values, any thread.
// Source: RFC 5280.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cw::tls {

inline constexpr char kRoleUri[] = "cwfabric://role/";

struct CertificateInfo {
  std::string subject;  // RFC 2253: "CN=alice,O=site"
  std::string common_name;
  std::string issuer;
  std::string serial;  // hexadecimal
  absl::Time not_before, not_after;
  std::vector<std::string> uris, dns_names, addresses;
  bool is_authority = false;
};

// All certificates of a PEM text, in its order. InvalidArgument: none, or one that cannot be read.
absl::StatusOr<std::vector<CertificateInfo>> ReadCertificates(absl::string_view pem);

// The last part of the one role URI. InvalidArgument: none, or several.
absl::StatusOr<std::string> RoleOf(const std::vector<std::string>& uris);

enum class Use { kServer, kClient };

// FailedPrecondition: the first certificate of `pem` is not one that somebody who trusts `authorities` takes for this
// use at that time; the rest of `pem` may be the chain.
absl::Status Verify(absl::string_view pem, absl::string_view authorities, Use use, absl::Time now);

struct Files {
  std::string cert, key, ca;  // paths
  std::string crl = {};       // a list of revoked certificates (revocation.h); "": none
};

// What the three files hold. The key is wiped when it goes.
class Material {
 public:
  Material() = default;
  Material(Material&& other) noexcept;
  Material& operator=(Material&& other) noexcept;
  Material(const Material&) = delete;
  Material& operator=(const Material&) = delete;
  ~Material();

  std::string cert, key, ca;  // PEM
  CertificateInfo info;       // of the first certificate of cert
};

// NotFound and PermissionDenied name the file; PermissionDenied also when others may read the key. FailedPrecondition:
// a file that is no PEM of its kind, or a key that is not the certificate's.
absl::StatusOr<Material> Load(const Files& files);

}  // namespace cw::tls
