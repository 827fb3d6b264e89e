// SPDX-License-Identifier: Apache-2.0
//
// Asks the kernel of a switch which way it would forward a packet (RTM_GETROUTE, rtnetlink(7)). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::lab {

class RouteQuery {
 public:
  static absl::StatusOr<std::unique_ptr<RouteQuery>> Open(const std::string& netns_path);
  ~RouteQuery();
  RouteQuery(const RouteQuery&) = delete;
  RouteQuery& operator=(const RouteQuery&) = delete;

  // The interface index that a UDP packet leaves by, had it come in at in_ifindex. Unavailable: no route.
  absl::StatusOr<int> OutputOf(int in_ifindex, const std::string& source, const std::string& destination,
                               uint16_t sport, uint16_t dport);

 private:
  explicit RouteQuery(int fd) : fd_(fd) {}
  std::mutex mutex_;  // one question at a time on the socket
  uint32_t sequence_ = 0;
  int fd_;
};

}  // namespace cw::lab
