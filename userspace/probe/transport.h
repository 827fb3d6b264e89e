// SPDX-License-Identifier: Apache-2.0
//
// How probes and messages leave one NIC: through the kernel (raw_socket.h), or by verbs (userspace/probe_verbs) where
// the NIC keeps UDP 4791 from the kernel. Both take the packets that packet.h makes, from their IP header on. Traces
// always go through the kernel.
// Thread rule: any thread; no member blocks.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cw::probe {

class Transport {
 public:
  virtual ~Transport() = default;

  // Unavailable: the queue is full, try later. Other codes: this packet cannot be sent (no route, link down, ...).
  virtual absl::Status Send(absl::Span<const uint8_t> packet) = 0;
  // As sendmmsg, packets of one family, each in one part: how many went, or −errno of the first.
  virtual int SendBatch(bool v6, mmsghdr* messages, unsigned count) = 0;
  // The UDP source ports that its packets can have; none: any port.
  virtual absl::Span<const uint16_t> ports() const { return {}; }
};

}  // namespace cw::probe
