// SPDX-License-Identifier: Apache-2.0
//
// Serves an AgentView over gRPC on a unix socket (mode 0660: root and the socket's group).
// The socket appears under its name only once it is served, and takes the place of one that a dead agent left;
// AlreadyExists when a living agent answers there. Headers of gRPC stay out of this one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/api/agent_view.h"

namespace cw::api {

class Server {
 public:
  // view must outlive the server. The socket's folder is made (mode 0750) when it is missing.
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
