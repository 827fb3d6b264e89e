// SPDX-License-Identifier: Apache-2.0
//
// What waits before a leaf–spine link right now, as the kernel counts it in the sending port's queue (its root
// queueing discipline: rtnetlink(7), RTM_GETQDISC, TCA_STATS2): the truth that fitted queues are held against.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

class PortQueue {
 public:
  // FailedPrecondition: the link is not shaped, so nothing waits where the kernel could count it.
  static absl::StatusOr<std::unique_ptr<PortQueue>> Open(const Fabric& fabric, const LinkDirection& link);
  ~PortQueue();
  PortQueue(const PortQueue&) = delete;
  PortQueue& operator=(const PortQueue&) = delete;

  // Ethernet headers included; a packet that is being sent is in it until it has left.
  absl::StatusOr<uint64_t> WaitingBytes();

 private:
  PortQueue(int netlink, int ifindex) : netlink_(netlink), ifindex_(ifindex) {}

  const int netlink_;
  const int ifindex_;
  uint32_t sequence_ = 0;
};

}  // namespace cw::lab
