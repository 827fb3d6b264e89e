// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/who.h"

#include <grpc/grpc_security_constants.h>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/api/tls_server.h"
#include "userspace/tls/certificate.h"

namespace cw::fleet {
namespace {

std::string PemOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> found = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? "" : std::string(found[0].begin(), found[0].end());
}

bool IsRevoked(tls::Revocations& revocations, const std::string& pem) {
  const tls::Revocations::Answer answer = revocations.Look(pem);
  if (!answer.problem.ok())
    spdlog::warn("the list of revoked certificates goes on as it was: {}", std::string(answer.problem.message()));
  return answer.revoked;
}

absl::Status HasRole(const api::Caller& who, api::Role least) {
  if (who.role >= least) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("this takes the role %s, and %s has the role %s; see cwctl certs user --help",
                      api::RoleName(least), who.name, api::RoleName(who.role)));
}

}  // namespace

void Callers::Known(const grpc::ServerContextBase& context, const std::string& pem) {
  if (door_ != nullptr) door_->Known(context.peer(), pem);
}

absl::StatusOr<Speaker> Callers::HostOf(const grpc::ServerContextBase& context) {
  const std::string pem = PemOf(*context.auth_context());
  const absl::StatusOr<std::vector<tls::CertificateInfo>> certificates = tls::ReadCertificates(pem);
  if (!certificates.ok()) return absl::PermissionDeniedError("the connection has no certificate that can be read");
  const tls::CertificateInfo& info = certificates->front();
  for (const std::string& uri : info.uris) {
    if (absl::StartsWith(uri, tls::kRoleUri))
      return absl::PermissionDeniedError(absl::StrFormat(
          "%s is a person's certificate; a host needs one of its own (cwctl certs host)", info.subject));
  }
  if (absl::Now() > info.not_after)
    return absl::PermissionDeniedError(
        absl::StrFormat("the certificate %s expired; have a new one made", info.subject));
  if (IsRevoked(revocations_, pem))
    return absl::PermissionDeniedError(absl::StrFormat("the certificate %s is revoked", info.subject));
  Known(context, pem);
  return Speaker{.names = info.dns_names.empty() ? std::vector<std::string>{info.common_name} : info.dns_names,
                 .addresses = info.addresses,
                 .from = api::AddressOfPeer(context.peer()),
                 .issuer = info.issuer,
                 .serial = info.serial,
                 .not_after = info.not_after};
}

absl::StatusOr<api::Caller> Callers::PersonOf(const grpc::ServerContextBase& context) {
  const std::string pem = PemOf(*context.auth_context());
  const api::Identified who = api::IdentifyCertificate(pem, context.peer(), absl::Now());
  if (!who.status.ok()) return who.status;
  if (IsRevoked(revocations_, pem))
    return absl::PermissionDeniedError(
        absl::StrFormat("the certificate of %s is revoked; have a new one made", who.caller.name));
  if (absl::Status may = HasRole(who.caller, api::Role::kRead); !may.ok()) return may;
  Known(context, pem);
  return who.caller;
}

absl::Status MayAct(const api::Caller& who) { return HasRole(who, api::Role::kSteer); }

}  // namespace cw::fleet
