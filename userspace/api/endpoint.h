// SPDX-License-Identifier: Apache-2.0
//
// How a client gets to an agent, and why it does not: gRPC tells "nobody there", "not for you" and "not trusted" apart
// only in prose, if at all. Thread rule: one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/client.h"

namespace cw::api {

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual const std::string& name() const = 0;  // for messages
  // Before each call: what can be told at once.
  virtual absl::Status Reach() = 0;
  virtual absl::StatusOr<std::shared_ptr<grpc::Channel>> Open() = 0;
  // After gRPC said "unavailable": why, in a sentence. Never ok.
  virtual absl::Status Explain(const std::string& grpc_says, absl::Duration patience) = 0;
};

std::unique_ptr<Endpoint> SocketEndpoint(const std::string& path);
std::unique_ptr<Endpoint> RemoteEndpoint(const RemoteAgent& agent);

}  // namespace cw::api
