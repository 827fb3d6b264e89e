// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/grpc_door.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/config/listen.h"

namespace cw::api {

namespace {

// Of those who came and did not show yet who they are; each handshake takes about 100 KiB.
constexpr size_t kMostNewcomers = 256, kPart = 8;  // of the limit on open files
constexpr size_t kMostOfOneCertificate = 64;

}  // namespace

std::string AddressOfPeer(absl::string_view peer) {
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos) return "";
  const bool v4 = absl::ConsumePrefix(&peer, "ipv4:"), v6 = !v4 && absl::ConsumePrefix(&peer, "ipv6:");
  if (!v4 && !v6) return "";
  absl::string_view host = peer.substr(0, colon - 5);
  if (!absl::ConsumePrefix(&host, "%5B")) absl::ConsumePrefix(&host, "[");
  if (!absl::ConsumeSuffix(&host, "%5D")) absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

std::string PlainPeer(absl::string_view peer) {
  uint32_t port = 0;
  if (!absl::SimpleAtoi(peer.substr(peer.rfind(':') + 1), &port)) return "";
  return doors::PeerOf(AddressOfPeer(peer), static_cast<uint16_t>(port));
}

void GrpcDoor::Known(const std::string& peer, const std::string& certificate) {
  if (door_ != nullptr) door_->Known(PlainPeer(peer), absl::StrCat(absl::HashOf(certificate)));
}

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
  doors::DoorSpec spec{.limits = limits,
                       .newcomers = {.most = std::max<size_t>(1, doors::ShareOfDescriptors(kMostNewcomers, kPart)),
                                     .of_one = kMostOfOneCertificate}};
  spec.admit = [this](maps::UniqueFd fd, const sockaddr_storage&) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd.release();
    acceptor_->HandleNewConnection(&connection);
  };
  absl::StatusOr<std::unique_ptr<doors::Door>> door = doors::Door::Open(std::move(listeners), std::move(spec));
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  door_->Start();
  return absl::OkStatus();
}

}  // namespace cw::api
