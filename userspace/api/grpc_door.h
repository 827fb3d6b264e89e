// SPDX-License-Identifier: Apache-2.0
//
// gRPC over TCP through a door of our own (userspace/doors/door.h): gRPC's listener has no limit, and ends for good
// when descriptors run out. A connection that says something goes to gRPC, whose deadline for handshakes holds then.
// Thread rule: one owner; Open once, when the server was built, and Close before it ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/doors/door.h"

namespace cw::api {

// Of gRPC's "ipv4:10.0.0.1:5" or "ipv6:%5Bfd00::1%5D:5", without and with its port; "": of another kind.
std::string AddressOfPeer(absl::string_view peer);
std::string PlainPeer(absl::string_view peer);

class GrpcDoor {
 public:
  GrpcDoor(grpc::ServerBuilder& builder, const std::shared_ptr<grpc::ServerCredentials>& credentials);
  // addresses: of config::ParseListen; 0.0.0.0 and [::] are all addresses of both families.
  // Unavailable: which of them cannot be served, and why.
  absl::Status Open(const std::vector<std::string>& addresses, doors::GuestLimits limits);
  void Close() {
    if (door_ != nullptr) door_->Close();
  }
  bool Answers(absl::Duration patience) { return door_ != nullptr && door_->Answers(patience); }
  // With each call whose certificate is known. peer: as gRPC names it; certificate: PEM. Any thread.
  void Known(const std::string& peer, const std::string& certificate);
  doors::DoorCounts counts() const { return door_ == nullptr ? doors::DoorCounts{} : door_->counts(); }

 private:
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<doors::Door> door_;
};

}  // namespace cw::api
