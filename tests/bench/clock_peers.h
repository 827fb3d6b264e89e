// SPDX-License-Identifier: Apache-2.0
//
// chrony and ptp4l on two hosts of the lab, measuring and never steering: chronyd -x and free_running 1, and without
// CAP_SYS_TIME, so that they could not if they wanted. All hosts of the lab share one kernel clock, so the true offset
// is 0 and what a daemon reports is its error.
// Thread rule: one thread, besides the pollers' own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"

namespace cw::bench {

struct PeerReadings {
  std::vector<double> error_ns;  // reported offset − truth (0), in order
  std::vector<double> bound_ns;  // what the daemon itself says the error is at most; empty: it says nothing
  std::string stamps;            // which time stamps it really used, in its own words
};

// Two daemons, a server and a client, on two hosts. Everything ends with the object.
class ClockPeer {
 public:
  virtual ~ClockPeer() = default;
  virtual std::string name() const = 0;
  // Asks the client's daemon `period` for period what it thinks, from now on.
  virtual absl::Status StartReading(absl::Duration period) = 0;
  // Internal: the daemon ended, never synchronised or gave fewer than `least` readings.
  virtual absl::StatusOr<PeerReadings> StopReading(size_t least) = 0;
};

// chronyd -x, as its authors advise for fast local links; several can live on the same hosts at different ports.
// hwts: with hwtimestamp on all interfaces.
absl::StatusOr<std::unique_ptr<ClockPeer>> StartChrony(lab::Fabric& fabric, int server, int client, int port,
                                                       bool hwts);

// ptp4l, unicast because multicast does not cross routed leaves.
absl::StatusOr<std::unique_ptr<ClockPeer>> StartPtp4l(lab::Fabric& fabric, int server, int client);

}  // namespace cw::bench
