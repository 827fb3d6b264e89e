// SPDX-License-Identifier: Apache-2.0
//
// Sends packets that begin with their own IPv4 or IPv6 header through one NIC (IPPROTO_RAW, so nothing is received).
// Thread rule: any thread; never blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/model/addr.h"
#include "userspace/probe/transport.h"

namespace cw::probe {

// Where a packet goes by its header, as sendmsg() wants to be told.
struct Destination {
  union {
    sockaddr_in6 v6;
    sockaddr_in v4;
  };
  socklen_t len = 0;

  explicit Destination(absl::Span<const uint8_t> packet);  // at least a whole IP header
  bool operator==(const Destination& other) const { return std::memcmp(&v6, &other.v6, sizeof(v6)) == 0; }
};

class RawSocket final : public Transport {
 public:
  // In the calling thread's network namespace; needs CAP_NET_RAW. ifindex 0: whatever the routes say.
  static absl::StatusOr<std::shared_ptr<RawSocket>> Open(int ifindex);
  ~RawSocket() override;
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  absl::Status Send(absl::Span<const uint8_t> packet) override;
  int SendBatch(bool v6, mmsghdr* messages, unsigned count) override;  // sendmmsg once
  int ifindex() const { return ifindex_; }

 private:
  RawSocket(int fd4, int fd6, int ifindex) : fd4_(fd4), fd6_(fd6), ifindex_(ifindex) {}
  const int fd4_;
  const int fd6_;  // -1: the kernel has no IPv6
  const int ifindex_;
};

}  // namespace cw::probe
