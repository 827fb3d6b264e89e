// SPDX-License-Identifier: Apache-2.0
//
// Serves an AgentView over gRPC: on a unix socket, whose callers are known by the kernel's word, and where it is wanted
// over TCP with mutual TLS, whose callers are known by their certificates. What each may call: roles.h.
// The socket appears under its name only once it is served, and takes the place of one that a dead agent left;
// AlreadyExists when a living agent answers there. Headers of gRPC stay out of this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/agent_api.h"
#include "userspace/api/unix_peer.h"
#include "userspace/tls/certificate.h"

namespace cw::api {

struct ServerOptions {
  std::string socket_path;
  GroupNames groups;             // none: the socket has mode 0660, and whom that lets in may do everything
  std::vector<std::string> tcp;  // addresses and ports; none: no TCP
  tls::Files tls;                // needed with tcp
  std::string acts_file;         // who changed what; "": nowhere
};

class Server {
 public:
  // view must outlive the server. The socket's folder is made (mode 0750) when it is missing.
  // InvalidArgument: tcp without all of tls, or a group that there is not.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, AgentView& view);
  // With nothing but the socket.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& socket_path, AgentView& view);
  // Ends followers and running calls (within 1 s), removes the socket.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::api
