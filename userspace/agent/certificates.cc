// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/certificates.h"

#include <sys/stat.h>
#include <unistd.h>

#include "userspace/tls/certificate.h"

namespace cw::agent {

std::optional<host::CertificateFacts> LookAtCertificates(const config::ApiConfig& api) {
  if (api.listen.empty()) return std::nullopt;
  host::CertificateFacts facts{.agent_uid = geteuid()};
  for (const std::string* path : {&api.tls_cert, &api.tls_key, &api.tls_ca}) {
    struct stat info {};
    if (stat(path->c_str(), &info) != 0) continue;  // Load says so
    facts.files.push_back(
        {.path = *path, .secret = path == &api.tls_key, .mode = info.st_mode & 07777, .owner = info.st_uid});
  }
  const absl::StatusOr<tls::Material> loaded = tls::Load({.cert = api.tls_cert, .key = api.tls_key, .ca = api.tls_ca});
  if (!loaded.ok()) {
    facts.problem = std::string(loaded.status().message());
    return facts;
  }
  facts.host_until = loaded->info.not_after;
  facts.authority_until = absl::InfiniteFuture();
  if (const auto authorities = tls::ReadCertificates(loaded->ca); authorities.ok()) {
    // Several while one is exchanged for another: the last one counts.
    facts.authority_until = absl::InfinitePast();
    for (const tls::CertificateInfo& each : *authorities)
      facts.authority_until = std::max(facts.authority_until, each.not_after);
  }
  return facts;
}

}  // namespace cw::agent
