// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/server.h"

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/api/calls.h"
#include "userspace/api/grpc_clock.h"
#include "userspace/api/grpc_door.h"
#include "userspace/api/grpc_log.h"
#include "userspace/api/guard.h"
#include "userspace/api/tls_server.h"
#include "userspace/api/user_servers.h"
#include "userspace/doors/door.h"
#include "userspace/tls/revocation.h"

namespace cw::api {
namespace {

constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 60'000;       // without a call
constexpr int kKeepaliveMs = 60'000;  // a client that vanished is noticed so
constexpr mode_t kGroupsMode = 0660, kOpenMode = 0666;
constexpr size_t kMostOfOne = 32, kMost = 256, kPart = 8;  // connections; of the limit on open files, each door

void LimitStrangers(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
}

// Whose certificate was revoked is turned away with the next call, on a connection that stands, too.
void RefuseRevoked(tls::Revocations& revocations, AgentView& view, const std::string& pem, Identified& who) {
  const tls::Revocations::Answer answer = revocations.Look(pem);
  if (!answer.problem.ok()) {
    view.Tell({.type = "api",
               .alert = true,
               .text = absl::StrCat("the list of revoked certificates goes on as it was: ",
                                    std::string(answer.problem.message()))});
  }
  if (answer.revoked)
    who.status = absl::PermissionDeniedError(
        absl::StrFormat("the certificate of %s is revoked; have a new one made", who.caller.name));
}

doors::GuestLimits ConnectionLimits() { return {.each = kMostOfOne, .all = doors::ShareOfDescriptors(kMost, kPart)}; }

absl::Status PrepareFolder(const std::string& socket_path) {
  const std::filesystem::path folder = std::filesystem::path(socket_path).parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder)) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms(0750), error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("cannot make folder %s: %s; run as root, or set run_dir", folder.string(), error.message()));
}

}  // namespace

// In this order, and ended in the opposite one.
struct Server::Impl {
  Impl(AgentView& view, UnixRoles roles, const ServerOptions& options)
      : calls(view),
        gate(view, options.acts_file),
        user_servers(calls, gate, queue, std::move(roles)),
        revocations(options.tls),
        service(calls, gate, queue,
                [this, &view](const grpc::ServerContextBase& context) { return ByCertificate(context, view); }) {}

  Calls calls;
  Gate gate;
  CallQueue queue;
  UserServers user_servers;
  tls::Revocations revocations;
  GuardedService service;                                // of tcp
  std::shared_ptr<grpc::ServerCredentials> credentials;  // gRPC asks them for each connection
  std::unique_ptr<grpc::Server> tcp;
  std::unique_ptr<GrpcDoor> tcp_door;
  std::unique_ptr<doors::Door> door;

  absl::StatusOr<Caller> ByCertificate(const grpc::ServerContextBase& context, AgentView& view) {
    const std::vector<grpc::string_ref> certificates =
        context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const std::string pem = certificates.empty() ? "" : std::string(certificates[0].begin(), certificates[0].end());
    Identified who = IdentifyCertificate(pem, context.peer(), absl::Now());
    if (who.status.ok()) RefuseRevoked(revocations, view, pem, who);
    if (who.status.ok()) {
      tcp_door->Known(context.peer(), pem);
      return who.caller;
    }
    who.caller.role = Role::kNone;
    gate.TurnedAway(who.caller, std::string(who.status.message()));
    return who.status;
  }

  absl::Status StartUnix(const std::string& path, mode_t mode) {
    if (absl::Status status = PrepareFolder(path); !status.ok()) return status;
    absl::StatusOr<doors::Listener> listener = doors::Listener::Unix(path, mode);
    if (absl::IsAlreadyExists(listener.status())) {
      return absl::AlreadyExistsError(
          absl::StrFormat("an agent already serves %s; stop it, or give this one another instance name", path));
    }
    if (!listener.ok()) {
      return absl::Status(listener.status().code(),
                          absl::StrCat(listener.status().message(), "; check the folder's owner and mode"));
    }
    doors::DoorSpec spec{.limits = ConnectionLimits()};
    spec.screen = [this](int fd, const sockaddr_storage&) { return user_servers.Screen(fd); };
    spec.admit = [this](maps::UniqueFd fd, const sockaddr_storage&) { user_servers.Admit(fd.release()); };
    std::vector<doors::Listener> listeners;
    listeners.push_back(*std::move(listener));
    absl::StatusOr<std::unique_ptr<doors::Door>> opened = doors::Door::Open(std::move(listeners), std::move(spec));
    if (!opened.ok()) return opened.status();
    door = *std::move(opened);
    door->Start();
    return absl::OkStatus();
  }

  absl::Status StartTcp(const ServerOptions& options, AgentView& view) {
    if (options.tls.cert.empty() || options.tls.key.empty() || options.tls.ca.empty()) {
      return absl::InvalidArgumentError(
          "api.listen is served with mutual TLS only; set api.tls_cert, api.tls_key and api.tls_ca");
    }
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> made =
        ReloadingCredentials(options.tls, [&view](const ApiEvent& event) { view.Tell(event); });
    if (!made.ok()) return made.status();
    if (absl::Status status = revocations.Load(); !status.ok()) return status;
    credentials = *std::move(made);
    LimitGrpc();
    WatchClockForGrpc();
    grpc::ServerBuilder builder;
    LimitServer(builder);
    LimitStrangers(builder);
    tcp_door = std::make_unique<GrpcDoor>(builder, credentials);
    builder.RegisterService(&service);
    tcp = builder.BuildAndStart();
    if (tcp == nullptr) return absl::UnavailableError("cannot start gRPC's server for api.listen");
    const absl::Status opened = tcp_door->Open(options.tcp, ConnectionLimits());
    return opened.ok() ? opened : absl::Status(opened.code(), absl::StrCat("api.listen: ", opened.message()));
  }
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& socket_path, AgentView& view) {
  return Start(ServerOptions{.socket_path = socket_path, .groups = {}, .tcp = {}, .tls = {}, .acts_file = ""}, view);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, AgentView& view) {
  absl::StatusOr<UnixRoles> roles = ResolveGroups(options.groups);
  if (!roles.ok()) return roles.status();
  const mode_t mode = roles->by_mode ? kGroupsMode : kOpenMode;
  auto impl = std::make_unique<Impl>(view, *std::move(roles), options);
  if (absl::Status status = impl->StartUnix(options.socket_path, mode); !status.ok()) return status;
  if (!options.tcp.empty()) {
    if (absl::Status status = impl->StartTcp(options, view); !status.ok()) return status;
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  impl_->door.reset();
  if (impl_->tcp_door != nullptr) impl_->tcp_door->Close();
  impl_->calls.Stop();
  if (impl_->tcp != nullptr) EndServer(*impl_->tcp, kPatience);
}

}  // namespace cw::api
