// SPDX-License-Identifier: Apache-2.0
//
// gRPC does not tell a call whose unix socket it came over. So each user gets a gRPC server of its own, which knows
// whom it serves, and connections are handed to the one of their owner: no number that is used again (of a descriptor,
// of a process) stands between a call and who made it.
// Thread rule: one thread (the door's).
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "userspace/api/guard.h"
#include "userspace/api/unix_peer.h"

namespace cw::api {

// What all servers of this process have in common: few threads, and what one message may take.
void LimitServer(grpc::ServerBuilder& builder);
// Running calls are cancelled after `patience`, which a client that is connected and asks nothing takes, too: it does
// not hear that its server ends. While an agent ends nobody probes.
inline constexpr absl::Duration kPatience = absl::Milliseconds(100);
void EndServer(grpc::Server& server, absl::Duration patience);

class UserServers {
 public:
  UserServers(Calls& calls, Gate& gate, CallQueue& queue, UnixRoles roles)
      : calls_(calls), gate_(gate), queue_(queue), roles_(std::move(roles)) {}
  ~UserServers();

  // Among whom its connection counts; nullopt: it has no role, which is kept.
  std::optional<std::string> Screen(int fd);
  // Owns fd: hands it to its owner's server, or closes it where the owner has no role.
  void Admit(int fd);

 private:
  struct UserServer {
    UserServer(Calls& calls, Gate& gate, CallQueue& queue, Caller who)
        : service(calls, gate, queue, [who = std::move(who)](const grpc::ServerContextBase&) { return who; }) {}
    GuardedService service;
    std::unique_ptr<grpc::Server> server;
    uint64_t used = 0;
  };
  static constexpr size_t kMostUsers = 16;  // more users: the one that came longest ago is sent away

  UserServer* ServerOf(const UnixPeer& peer, Role role);
  void MakeSpace();

  Calls& calls_;
  Gate& gate_;
  CallQueue& queue_;
  const UnixRoles roles_;
  std::map<std::pair<uid_t, Role>, UserServer> servers_;
  uint64_t admitted_ = 0;
};

}  // namespace cw::api
