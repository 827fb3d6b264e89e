// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/user_servers.h"

#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/api/plain_messages.h"

namespace cw::api {
namespace {

constexpr int kMaxThreads = 24;
constexpr int kMaxRequestBytes = 1 << 20;
constexpr int kMaxStreams = 32;  // of one connection

}  // namespace

void LimitServer(grpc::ServerBuilder& builder) {
  grpc::ResourceQuota quota("cwfabric");
  quota.SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  TakeNoCompression(builder);
}

void EndServer(grpc::Server& server, absl::Duration patience) {
  server.Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server.Wait();
}

UserServers::~UserServers() {
  for (auto& [owner, user] : servers_) EndServer(*user.server, kPatience);
}

std::optional<std::string> UserServers::Screen(int fd) {
  const absl::StatusOr<UnixPeer> peer = ReadPeer(fd);
  if (!peer.ok()) return std::nullopt;
  const Role role = RoleOfPeer(roles_, *peer);
  if (role != Role::kNone) return absl::StrCat(peer->uid);
  gate_.TurnedAway(CallerOf(*peer, role), "neither root nor in a group of [api] in the agent's configuration");
  return std::nullopt;
}

void UserServers::Admit(int fd) {
  const absl::StatusOr<UnixPeer> peer = ReadPeer(fd);
  const Role role = peer.ok() ? RoleOfPeer(roles_, *peer) : Role::kNone;
  UserServer* user = role == Role::kNone ? nullptr : ServerOf(*peer, role);
  if (user != nullptr) {
    user->used = ++admitted_;
    grpc::AddInsecureChannelFromFd(user->server.get(), fd);
    return;
  }
  close(fd);
}

UserServers::UserServer* UserServers::ServerOf(const UnixPeer& peer, Role role) {
  const std::pair key{peer.uid, role};
  if (const auto found = servers_.find(key); found != servers_.end()) return &found->second;
  if (servers_.size() >= kMostUsers) MakeSpace();
  UserServer& user = servers_
                         .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                                  std::forward_as_tuple(calls_, gate_, queue_, CallerOf(peer, role)))
                         .first->second;
  grpc::ServerBuilder builder;
  LimitServer(builder);
  builder.RegisterService(&user.service);
  user.server = builder.BuildAndStart();
  if (user.server != nullptr) return &user;
  servers_.erase(key);
  return nullptr;
}

void UserServers::MakeSpace() {
  const auto oldest = std::min_element(servers_.begin(), servers_.end(),
                                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  EndServer(*oldest->second.server, absl::ZeroDuration());
  servers_.erase(oldest);
}

}  // namespace cw::api
