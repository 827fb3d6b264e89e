// SPDX-License-Identifier: Apache-2.0
//
// Datagrams of one NIC by verbs (libibverbs): unreliable datagram queue pairs on the RoCEv2 GID that is the NIC's
// address. One queue pair receives. Sent datagrams get the UDP source port that is asked for: by the flow label of the
// address handle where the driver makes the port from it, by the choice of a queue pair on soft-RoCE (soft_roce.h).
// Address handles are made by a thread of its own, because that may wait for a neighbour's answer; until one is there,
// Send says Unavailable. What packet_endpoint.h opens does the same without a device.
// Thread rule: Send, CanSend and stamps from any thread; they do not block. Arm, TakeEvents, Poll and KeepClock from
// one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/model/addr.h"
#include "userspace/probe_verbs/receive_queue.h"

namespace cw::probe_verbs {

struct EndpointOptions {
  uint32_t ifindex = 0;
  std::string netdev;  // its name, for messages
  Addr address;
  uint32_t soft_roce_ports = 64;  // queue pairs that send, on soft-RoCE; a few may share a port
};

// A datagram on its way out.
struct Datagram {
  Addr to;
  uint32_t qpn = 0;
  uint16_t port = 0;  // UDP source port
  uint8_t traffic_class = 0;
  uint32_t label = 0;  // IPv6 flow label; a device that makes the port of the label has its own
  absl::Span<const uint8_t> payload;
};

struct Received {
  absl::Span<const uint8_t> grh;  // 40 bytes
  absl::Span<const uint8_t> payload;
  uint32_t qpn = 0;                   // of the sender
  std::optional<int64_t> arrived_ns;  // as the device stamped it, CLOCK_MONOTONIC
};

class UdEndpoint {
 public:
  // NotFound: no RDMA device has the address as a RoCEv2 GID on that interface. Other errors name the call that failed.
  static absl::StatusOr<std::unique_ptr<UdEndpoint>> Open(const EndpointOptions& options);
  // Whether Open would find a device; opens it for that.
  static bool IsThere(const EndpointOptions& options);
  virtual ~UdEndpoint() = default;

  virtual const Addr& address() const = 0;
  virtual const std::string& device() const = 0;
  virtual uint32_t qpn() const = 0;  // the one that receives
  virtual size_t max_payload() const = 0;
  // The source ports it can give; none: all from kFirstRocePort on.
  virtual absl::Span<const uint16_t> ports() const = 0;
  // One of them, another for each turn.
  virtual uint16_t AnyPort(uint32_t turn) const = 0;

  // Whether Send would find an address handle and room; it asks for the handle otherwise.
  virtual bool CanSend(const Datagram& datagram) = 0;
  // Unavailable: not yet, try later. InvalidArgument: a port it cannot give, or a payload that is too long. Other
  // codes: the driver refused.
  virtual absl::Status Send(const Datagram& datagram) = 0;

  virtual int event_fd() const = 0;  // readable after Arm, when something has arrived
  virtual absl::Status Arm() = 0;
  virtual void TakeEvents() = 0;  // after event_fd() was readable; then Arm, then Poll until 0
  // Calls for each datagram that has arrived, at most 64; how many. The spans hold during the call.
  virtual int Poll(absl::FunctionRef<void(const Received&)> each) = 0;

  // Whether the device stamps what arrives by a clock of its own; then KeepClock has to be called ten times a second.
  virtual bool has_clock() const = 0;
  virtual void KeepClock(int64_t now_ns) = 0;
  virtual ArrivalStamps stamps() const = 0;
};

}  // namespace cw::probe_verbs
