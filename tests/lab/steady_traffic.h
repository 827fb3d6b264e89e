// SPDX-License-Identifier: Apache-2.0
// Traffic that goes on for as long as a test looks: queue pairs from host 0 to host 1, a packet each per interval.
#pragma once

#include "absl/time/time.h"
#include "userspace/lab/emulator.h"

namespace cw::lab {

inline JobSpec SteadyTraffic(absl::Duration packet_interval = absl::Milliseconds(1), int qps = 4) {
  JobSpec job;
  job.name = "traffic";
  job.pairs = {{0, 1}};
  job.qps_per_pair = qps;
  job.message_bytes = 64 << 10;
  job.duration = absl::Hours(1);
  job.packet_interval = packet_interval;
  job.path_mtu = 1024;
  job.rate.reacts = false;
  return job;
}

}  // namespace cw::lab
