// SPDX-License-Identifier: Apache-2.0
//
// ICMP time-exceeded messages (RFC 792, RFC 4443) that answer trace packets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/model/addr.h"

namespace cw::probe {

struct TraceAnswer {
  Addr router;
  Addr local;          // quoted source
  Addr remote;         // quoted destination
  uint16_t port = 0;   // quoted UDP source port
  uint16_t ip_id = 0;  // quoted; IPv6 has none: of the trace's round, which equals it
};

// packet: from the IPv4 header on, as a raw socket gives it. nullopt: anything but time exceeded in transit for UDP to
// port 4791. Pure.
std::optional<TraceAnswer> ParseTimeExceeded(absl::Span<const uint8_t> packet);

// The same of ICMPv6. message: from the ICMPv6 header on, as a raw socket gives it; router: who sent it. The quote must
// hold the trace's header up to the round, as switches quote all that fits into 1280 bytes.
std::optional<TraceAnswer> ParseTimeExceeded6(const Addr& router, absl::Span<const uint8_t> message);

// Thread rule: one thread. Non-blocking.
class IcmpSocket {
 public:
  // In the calling thread's network namespace; needs CAP_NET_RAW.
  static absl::StatusOr<std::unique_ptr<IcmpSocket>> Open();
  ~IcmpSocket();
  IcmpSocket(const IcmpSocket&) = delete;
  IcmpSocket& operator=(const IcmpSocket&) = delete;

  int fd() const { return poll_fd_; }  // to poll for input
  // At most `limit` messages, so that a flood of ICMP cannot hold up the caller's loop.
  void Read(int limit, const std::function<void(const TraceAnswer&)>& answer);

 private:
  IcmpSocket(int fd4, int fd6, int poll_fd) : fd4_(fd4), fd6_(fd6), poll_fd_(poll_fd) {}
  const int fd4_;
  const int fd6_;  // -1: the kernel has no IPv6
  const int poll_fd_;
};

}  // namespace cw::probe
