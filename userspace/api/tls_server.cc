// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/tls_server.h"

#include <grpc/grpc_security.h>

#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/tls/watch.h"

namespace cw::api {
namespace {

constexpr absl::Duration kSoonOver = absl::Hours(24 * 14);

// Asked by gRPC for every connection; lives as long as the credentials.
class Source {
 public:
  Source(const tls::Files& files, std::function<void(const ApiEvent&)> tell) : watch_(files), tell_(std::move(tell)) {}

  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config) {
    const std::lock_guard lock(mutex_);
    tls::Watch::News news = watch_.Look();
    if (!news.problem.ok()) {
      tell_({.type = "api",
             .alert = true,
             .text = absl::StrCat("TLS goes on with the certificate it has: ", std::string(news.problem.message()))});
    }
    if (!news.fresh) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{news.fresh->key.c_str(), news.fresh->cert.c_str()};
    *config = grpc_ssl_server_certificate_config_create(news.fresh->ca.c_str(), &pair, 1);
    tell_(CertificateTaken(news.fresh->info, absl::Now()));
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

 private:
  std::mutex mutex_;
  tls::Watch watch_;
  const std::function<void(const ApiEvent&)> tell_;
};

grpc_ssl_certificate_config_reload_status FetchFrom(void* source, grpc_ssl_server_certificate_config** config) {
  return static_cast<Source*>(source)->Fetch(config);
}

// gRPC's C++ has no credentials whose files are looked at for each connection; its C core has. (Its file watcher drops
// what it had when a new pair of files does not match.)
class Credentials final : public grpc::ServerCredentials {
 public:
  explicit Credentials(std::unique_ptr<Source> source)
      : source_(std::move(source)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, FetchFrom, source_.get()))) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::unique_ptr<Source> source_;
  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ReloadingCredentials(
    const tls::Files& files, std::function<void(const ApiEvent&)> tell) {
  if (absl::StatusOr<tls::Material> first = tls::Load(files); !first.ok()) return first.status();
  return std::shared_ptr<grpc::ServerCredentials>(
      std::make_shared<Credentials>(std::make_unique<Source>(files, std::move(tell))));
}

ApiEvent CertificateTaken(const tls::CertificateInfo& info, absl::Time now) {
  ApiEvent event;
  event.type = "api";
  const std::string until = absl::FormatTime(absl::RFC3339_sec, info.not_after, absl::UTCTimeZone());
  const bool over = info.not_after <= now;
  event.alert = info.not_after - now < kSoonOver;
  event.text =
      absl::StrFormat("TLS with the certificate %s, %s %s%s", info.subject, over ? "which expired" : "valid until",
                      until, over ? ": no client will take it; put a new one in its place" : "");
  event.evidence = {{"subject", info.subject}, {"serial", info.serial}, {"valid_until", until}};
  return event;
}

Identified IdentifyCertificate(const std::string& pem, const std::string& peer, absl::Time now) {
  Identified out;
  const absl::StatusOr<std::vector<tls::CertificateInfo>> certificates = tls::ReadCertificates(pem);
  if (!certificates.ok()) {
    out.caller = {.name = peer, .role = Role::kNone, .via = peer};
    out.status = absl::PermissionDeniedError("the connection has no certificate that can be read");
    return out;
  }
  const tls::CertificateInfo& info = certificates->front();
  out.caller.name = info.common_name.empty() ? info.subject : info.common_name;
  out.caller.via = absl::StrFormat("certificate %s, serial %s, from %s", info.subject, info.serial, peer);
  if (now > info.not_after) {
    out.status = absl::PermissionDeniedError(
        absl::StrFormat("the certificate %s expired while the connection stood; have a new one made", info.subject));
    return out;
  }
  const absl::StatusOr<std::string> text = tls::RoleOf(info.uris);
  const std::optional<Role> role = text.ok() ? ParseRole(*text) : std::nullopt;
  if (role) {
    out.caller.role = *role;
    return out;
  }
  out.status = absl::PermissionDeniedError(
      absl::StrCat(info.subject, ": ",
                   text.ok() ? absl::StrFormat("there is no role %s; roles are read, steer and admin", *text)
                             : std::string(text.status().message())));
  return out;
}

}  // namespace cw::api
