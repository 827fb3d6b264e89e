// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/endpoint.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "userspace/api/grpc_log.h"
#include "userspace/api/plain_messages.h"
#include "userspace/tls/handshake.h"

namespace cw::api {
namespace {

class Socket final : public Endpoint {
 public:
  explicit Socket(std::string path) : path_(std::move(path)) {}

  const std::string& name() const override { return path_; }

  absl::Status Reach() override {
    const absl::StatusOr<int> fd = Connect();
    if (fd.ok()) close(*fd);
    return fd.status();
  }

  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open() override {
    return grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), PlainMessages());
  }

  // An agent that does not know us closes the connection before either side has said a word.
  absl::Status Explain(const std::string& grpc_says, absl::Duration patience) override {
    const absl::StatusOr<int> fd = Connect();
    if (!fd.ok()) return fd.status();
    const absl::Cleanup close_fd = [&fd] { close(*fd); };
    pollfd wait{.fd = *fd, .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) == 1 &&
        recv(*fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
      return absl::PermissionDeniedError(absl::StrFormat(
          "the agent on %s lets you do nothing; run as root, or join a group that [api] of its configuration names",
          path_));
    }
    return absl::UnavailableError(absl::StrFormat("the agent on %s broke off: %s", path_, grpc_says));
  }

 private:
  absl::StatusOr<int> Connect() const {
    sockaddr_un address{};
    if (path_.size() >= sizeof(address.sun_path))
      return absl::InvalidArgumentError(absl::StrFormat("socket path %s is too long", path_));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return absl::InternalError(absl::StrFormat("socket: %s", strerror(errno)));
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    const int error = errno;
    close(fd);
    if (error == EACCES || error == EPERM) {
      return absl::PermissionDeniedError(
          absl::StrFormat("may not open %s; run as root or join the socket's group", path_));
    }
    return absl::UnavailableError(
        absl::StrFormat("no agent answers on %s (%s); start cwagentd, or name another with "
                        "--instance or --socket",
                        path_, strerror(error)));
  }

  const std::string path_;
};

class Remote final : public Endpoint {
 public:
  explicit Remote(RemoteAgent agent) : agent_(std::move(agent)) { SilenceGrpc(); }

  const std::string& name() const override { return agent_.server; }

  absl::Status Reach() override {
    if (material_) return absl::OkStatus();
    absl::StatusOr<tls::HostPort> server = tls::ParseHostPort(agent_.server);
    if (!server.ok()) return server.status();
    absl::StatusOr<tls::Material> material = tls::Load(agent_.tls);
    if (!material.ok()) return absl::FailedPreconditionError(material.status().message());
    server_ = *std::move(server);
    material_ = *std::move(material);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open() override {
    const grpc::SslCredentialsOptions own{
        .pem_root_certs = material_->ca, .pem_private_key = material_->key, .pem_cert_chain = material_->cert};
    return grpc::CreateCustomChannel(agent_.server, grpc::SslCredentials(own), PlainMessages());
  }

  absl::Status Explain(const std::string& grpc_says, absl::Duration patience) override {
    const absl::Status why = tls::TryHandshake(server_, *material_, patience);
    if (!why.ok()) return why;
    return absl::UnavailableError(absl::StrFormat("the agent on %s broke off: %s", agent_.server, grpc_says));
  }

 private:
  const RemoteAgent agent_;
  tls::HostPort server_;
  std::optional<tls::Material> material_;
};

}  // namespace

std::unique_ptr<Endpoint> SocketEndpoint(const std::string& path) { return std::make_unique<Socket>(path); }

std::unique_ptr<Endpoint> RemoteEndpoint(const RemoteAgent& agent) { return std::make_unique<Remote>(agent); }

}  // namespace cw::api
