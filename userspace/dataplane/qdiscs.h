// SPDX-License-Identifier: Apache-2.0
//
// The queueing disciplines of a device, by route netlink, and whether they keep packets' departure times. tc-fq(8)
// does: it sends no packet before its skb->tstamp. All others of Debian's kernels but etf ignore it. Any thread; the
// device is of the calling thread's network namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::dataplane {

struct Qdisc {
  std::string kind;     // "fq"
  uint32_t handle = 0;  // 0: not named
  uint32_t parent = 0;  // TC_H_ROOT: the device's own
};

// Every packet of the device waits in an fq: as its root, or one under each queue of mq or under each tbf. False for
// any other form, where some queue may be hidden.
bool KeepsDepartures(const std::vector<Qdisc>& qdiscs);

// Asks the kernel for those of all devices, as it has no other way to list the children of one.
absl::StatusOr<std::vector<Qdisc>> QdiscsOf(uint32_t ifindex);

// One datagram of such a dump, with those of ifindex added. Returns false once the dump is done. Exposed for tests.
absl::StatusOr<bool> ParseQdiscDump(const void* data, size_t length, uint32_t ifindex, std::vector<Qdisc>& qdiscs);

}  // namespace cw::dataplane
