// SPDX-License-Identifier: Apache-2.0
//
// GET and HEAD of a few pages by HTTP/1.1 on a unix socket or a TCP port, on one thread of its own. Bounded: at most 64
// connections, 8 of one address, each closed after 10 s without a request, or a request after 30 s where others come;
// over TCP the oldest that made no whole request goes for another one; at most 16 KiB for a request's head; bodies of
// requests are refused. What is behind "?" is not looked at. Everything else is 404 or 405. Thread rule: Start and the
// destructor on one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/config/listen.h"

namespace cw::http {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";  // Prometheus' text format
inline constexpr char kJsonType[] = "application/json";

struct Route {
  std::string path;  // "/metrics", compared whole
  std::string type;  // Content-Type
  // The body, made on the server's thread. An error becomes 503 with its message.
  std::function<absl::StatusOr<std::string>()> page;
};

struct Limits {
  size_t each = 8, all = 64;                   // connections of one address (a unix socket has none), and in all
  absl::Duration longest = absl::Seconds(30);  // of one request, where others come: who reads slowly ends
};

class Server {
 public:
  // A unix socket is made with mode 0660 in a folder that exists. AlreadyExists: somebody listens there; Unavailable:
  // the address cannot be had.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const config::Listen& listen, std::vector<Route> routes,
                                                       const Limits& limits = {});
  ~Server();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::http
