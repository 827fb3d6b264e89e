// SPDX-License-Identifier: Apache-2.0
//
// GET and HEAD /metrics by HTTP/1.1 on a unix socket or a TCP port, on one thread of its own. Bounded: at most 16
// connections, each closed after 10 s without a request, at most 16 KiB for a request's head; bodies of requests are
// refused. Everything else is 404 or 405. Thread rule: Start and the destructor on one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/config/listen.h"

namespace cw::metrics {

class HttpServer {
 public:
  // The text of /metrics, made on the server's thread. An error becomes 503 with its message.
  using Page = std::function<absl::StatusOr<std::string>()>;

  // A unix socket is made with mode 0660 in a folder that exists. AlreadyExists: somebody listens there; Unavailable:
  // the address cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const config::Listen& listen, Page page);
  ~HttpServer();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::metrics
