// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/grpc_door.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/config/listen.h"

namespace cw::api {

GrpcDoor::GrpcDoor(grpc::ServerBuilder& builder, const std::shared_ptr<grpc::ServerCredentials>& credentials)
    : acceptor_(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials)) {}

absl::Status GrpcDoor::Open(const std::vector<std::string>& addresses, doors::GuestLimits limits) {
  std::vector<doors::Listener> listeners;
  for (const std::string& address : addresses) {
    const absl::StatusOr<config::Listen> where = config::ParseListen(address);
    if (!where.ok()) return absl::InvalidArgumentError(absl::StrCat(address, " must be ", where.status().message()));
    absl::StatusOr<doors::Listener> listener = doors::Listener::Tcp(*where, true);
    if (!listener.ok()) {
      return absl::UnavailableError(
          absl::StrCat(listener.status().message(), "; is it an address of this host, and the port free?"));
    }
    listeners.push_back(*std::move(listener));
  }
  doors::DoorSpec spec{.limits = limits};
  spec.admit = [this](maps::UniqueFd fd, const sockaddr_storage&) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd.release();
    acceptor_->HandleNewConnection(&connection);
  };
  absl::StatusOr<std::unique_ptr<doors::Door>> door = doors::Door::Open(std::move(listeners), std::move(spec));
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  return absl::OkStatus();
}

}  // namespace cw::api
