// SPDX-License-Identifier: Apache-2.0
//
// What a pair of clocks loses to the lab itself: one-way delays between two hosts that share one clock, stamped where
// the product stamps (tc egress, XDP ingress), over every spine. No agent may be on the hosts.
// Thread rule: one thread, besides the senders' own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"

namespace cw::bench {

struct Stamp {
  int64_t sent_ns = 0;
  int64_t received_ns = 0;
  int path = 0;  // spine
  double DelayNs() const { return static_cast<double>(received_ns - sent_ns); }
};

struct StampRun {
  std::vector<Stamp> forward;  // from host to other
  std::vector<Stamp> reverse;

  // (least forward delay − least reverse delay) / 2 for each window: the error that any method makes that takes the
  // minimum of stamps of the same kind. path −1: over all paths.
  std::vector<double> FloorNs(absl::Duration window, int path = -1) const;
};

// Both hosts send one packet per spine each `interval`, by SCHED_FIFO where that is allowed.
absl::StatusOr<StampRun> MeasureStamps(const lab::Fabric& fabric, int host, int other, absl::Duration interval,
                                       absl::Duration length);

}  // namespace cw::bench
