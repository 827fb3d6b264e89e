// SPDX-License-Identifier: Apache-2.0
#include "userspace/tls/handshake.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/tls/openssl.h"

namespace cw::tls {
namespace {

absl::StatusOr<int> ConnectTo(const addrinfo& where, absl::Duration patience) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::UnavailableError(strerror(errno));
  int error = connect(fd, where.ai_addr, where.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(error);
    if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) != 1) {
      error = ETIMEDOUT;
    } else {
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error == 0) return fd;
  close(fd);
  return absl::UnavailableError(strerror(error));
}

absl::StatusOr<int> ConnectToAny(const HostPort& server, absl::Duration patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found); error != 0)
    return absl::UnavailableError(absl::StrFormat("%s cannot be looked up: %s", server.host, gai_strerror(error)));
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  absl::StatusOr<int> fd = absl::UnavailableError("no address");
  for (const addrinfo* each = found; each != nullptr && !fd.ok(); each = each->ai_next) fd = ConnectTo(*each, patience);
  return fd;
}

// Blocking, but for no longer than `patience` at a time.
void LimitWaits(int fd, absl::Duration patience) {
  const timeval limit = absl::ToTimeval(patience);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const int flags = fcntl(fd, F_GETFL, 0);
  (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

// As gRPC speaks: TLS 1.2 or later, HTTP/2.
absl::StatusOr<Context> MakeContext(const Material& own) {
  Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2));
  const Bio authorities = Reading(own.ca);
  while (X509* next = PEM_read_bio_X509(authorities.get(), nullptr, NoPassPhrase, nullptr)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), next);
    X509_free(next);
  }
  const Bio chain = Reading(own.cert);
  bool first = true;
  while (X509* next = PEM_read_bio_X509(chain.get(), nullptr, NoPassPhrase, nullptr)) {
    if (first) SSL_CTX_use_certificate(context.get(), next);
    if (!first) SSL_CTX_add1_chain_cert(context.get(), next);
    X509_free(next);
    first = false;
  }
  ERR_clear_error();
  const Key key = ReadKey(own.key);
  if (key == nullptr || SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1)
    return absl::FailedPreconditionError(absl::StrCat("the key cannot be used: ", LastError()));
  return context;
}

absl::Status OwnIsGood(const Material& own) {
  const absl::Time now = absl::Now();
  if (now > own.info.not_after || now < own.info.not_before) {
    return absl::FailedPreconditionError(
        absl::StrFormat("your certificate %s %s %s; have a new one made", own.info.subject,
                        now > own.info.not_after ? "expired" : "is not valid before",
                        absl::FormatTime(now > own.info.not_after ? own.info.not_after : own.info.not_before)));
  }
  const absl::Status status = Verify(own.cert, own.ca, Use::kClient, now);
  if (status.ok()) return status;
  return absl::FailedPreconditionError(
      absl::StrFormat("your certificate %s, signed by %s, is not one for clients of "
                      "the authority in --ca: %s",
                      own.info.subject, own.info.issuer, std::string(status.message())));
}

absl::Status Refused(const std::string& why, const Material& own) {
  return absl::PermissionDeniedError(
      absl::StrFormat("the agent does not take your certificate %s, signed by %s (%s); its api.tls_ca decides",
                      own.info.subject, own.info.issuer, why));
}

// Without a word of TLS. Who has too many connections is sent away so.
bool ClosedByTheOtherEnd(int error) {
  return error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN ||
         (error == SSL_ERROR_SSL && ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING);
}

// The server's answer to our certificate comes after our part of the handshake (TLS 1.3), so something is read.
absl::Status Speak(SSL* ssl, const HostPort& server, const Material& own) {
  if (const int connected = SSL_connect(ssl); connected != 1) {
    const bool closed = ClosedByTheOtherEnd(SSL_get_error(ssl, connected));
    const long verified = SSL_get_verify_result(ssl);
    const std::string reason = LastError();
    if (verified != X509_V_OK) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the certificate of %s is not to be trusted: %s; is --ca the site's authority, and %s a name "
                          "in that certificate?",
                          server.host, X509_verify_cert_error_string(verified), server.host));
    }
    if (closed)
      return absl::UnavailableError(absl::StrFormat(
          "%s port %s closed the connection before it saw a certificate: too many connections, of this address or in "
          "all, or it speaks no TLS; try again soon",
          server.host, server.port));
    return Refused(reason, own);
  }
  char byte = 0;
  const int read = SSL_read(ssl, &byte, 1);
  if (read > 0) return absl::OkStatus();
  const int error = SSL_get_error(ssl, read);
  if (error == SSL_ERROR_WANT_READ) return absl::OkStatus();  // slow, not unwilling
  if (!ClosedByTheOtherEnd(error)) return Refused(LastError(), own);
  return Refused("it closed the connection; or it has too many", own);
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostPort out;
  if (colon != std::string::npos && colon > 0) {
    out.host = text.substr(0, colon);
    out.port = text.substr(colon + 1);
  }
  const bool brackets = out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']';
  if (brackets) out.host = out.host.substr(1, out.host.size() - 2);
  const bool number = !out.port.empty() && out.port.size() <= 5 &&
                      std::all_of(out.port.begin(), out.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  const bool plain = brackets || out.host.find(':') == std::string::npos;
  if (!out.host.empty() && number && plain) return out;
  return absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" is no server; write HOST:PORT, such as node17:9478 or [fd00::5]:9478", text));
}

absl::Status TryHandshake(const HostPort& server, const Material& own, absl::Duration patience) {
  if (absl::Status status = OwnIsGood(own); !status.ok()) return status;
  const absl::StatusOr<int> fd = ConnectToAny(server, patience);
  if (!fd.ok()) {
    return absl::UnavailableError(
        absl::StrFormat("no agent answers on %s port %s (%s); is api.listen set there, and the port not filtered?",
                        server.host, server.port, std::string(fd.status().message())));
  }
  const absl::Cleanup close_fd = [&fd] { close(*fd); };
  LimitWaits(*fd, patience);
  absl::StatusOr<Context> context = MakeContext(own);
  if (!context.ok()) return context.status();
  const Connection ssl(SSL_new(context->get()));
  if (IsAddress(server.host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), server.host.c_str());
  } else {
    SSL_set1_host(ssl.get(), server.host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), server.host.c_str());
  }
  SSL_set_fd(ssl.get(), *fd);
  return Speak(ssl.get(), server, own);
}

}  // namespace cw::tls
