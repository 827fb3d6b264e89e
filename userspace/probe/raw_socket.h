// SPDX-License-Identifier: Apache-2.0
//
// Sends packets that begin with their own IPv4 header through one NIC (IPPROTO_RAW, so nothing is received).
// Thread rule: any thread; never blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/model/addr.h"

namespace cw::probe {

class RawSocket {
 public:
  // In the calling thread's network namespace; needs CAP_NET_RAW. ifindex 0: whatever the routes say.
  static absl::StatusOr<std::shared_ptr<RawSocket>> Open(int ifindex);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  // Unavailable: the queue is full, try later. Other codes: this packet cannot be sent (no route, link down, ...).
  absl::Status Send(absl::Span<const uint8_t> packet);
  // sendmmsg once: how many went, or −errno of the first.
  int SendBatch(mmsghdr* messages, unsigned count);
  int ifindex() const { return ifindex_; }

 private:
  RawSocket(int fd, int ifindex) : fd_(fd), ifindex_(ifindex) {}
  const int fd_;
  const int ifindex_;
};

}  // namespace cw::probe
