// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/rooms.h"

#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "absl/time/time.h"

namespace cw::api {
namespace {

constexpr int kMaxThreads = 24;
constexpr int kMaxRequestBytes = 1 << 20;

}  // namespace

void LimitServer(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("cwfabric");
  quota.SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
}

void EndServer(grpc::Server& server, absl::Duration patience) {
  server.Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server.Wait();
}

Rooms::~Rooms() {
  for (auto& [owner, room] : rooms_) EndServer(*room.server, kPatience);
}

void Rooms::Admit(int fd) {
  const absl::StatusOr<UnixPeer> peer = ReadPeer(fd);
  const Role role = peer.ok() ? RoleOfPeer(roles_, *peer) : Role::kNone;
  Room* room = role == Role::kNone ? nullptr : RoomOf(*peer, role);
  if (room != nullptr) {
    room->used = ++admitted_;
    grpc::AddInsecureChannelFromFd(room->server.get(), fd);
    return;
  }
  close(fd);
  if (peer.ok() && role == Role::kNone)
    gate_.TurnedAway(CallerOf(*peer, role), "neither root nor in a group of [api] in the agent's configuration");
}

Rooms::Room* Rooms::RoomOf(const UnixPeer& peer, Role role) {
  const std::pair key{peer.uid, role};
  if (const auto found = rooms_.find(key); found != rooms_.end()) return &found->second;
  if (rooms_.size() >= kMostRooms) MakeSpace();
  Room& room = rooms_
                   .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                            std::forward_as_tuple(calls_, gate_, CallerOf(peer, role)))
                   .first->second;
  grpc::ServerBuilder builder;
  LimitServer(builder);
  builder.RegisterService(&room.service);
  room.server = builder.BuildAndStart();
  if (room.server != nullptr) return &room;
  rooms_.erase(key);
  return nullptr;
}

void Rooms::MakeSpace() {
  const auto oldest = std::min_element(rooms_.begin(), rooms_.end(),
                                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  EndServer(*oldest->second.server, absl::ZeroDuration());
  rooms_.erase(oldest);
}

}  // namespace cw::api
