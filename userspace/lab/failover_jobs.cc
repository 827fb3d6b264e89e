// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_jobs.h"

namespace cw::lab {

JobSpec MeasuredJob(const FailoverSpec& spec, int receiver) {
  JobSpec job;
  job.name = "measured";
  job.pairs = {{0, receiver}};
  job.qps_per_pair = spec.flows;
  job.message_bytes = 64 << 10;
  job.duration = absl::Hours(1);
  job.packet_interval = spec.packet_interval;
  job.path_mtu = 512;
  job.ack_every = 4;
  job.timeout = spec.timeout;
  job.retry_cnt = 7;
  job.rate.reacts = false;
  if (!spec.tails) return job;
  job.message_bytes = 2048;
  job.outstanding = 1;
  return job;
}

JobSpec BackgroundJob(const FailoverSpec& spec, int receiver, int flows) {
  JobSpec job;
  job.name = "background";
  job.pairs = {{0, receiver}};
  job.qps_per_pair = flows;
  job.message_bytes = 1 << 20;
  job.duration = absl::Hours(1);
  const double line_bps = spec.testbed.fabric.link_mbps * 1e6;
  job.rate = RateConfig::ForLine(line_bps);
  // ECN would let the flows fill the links; the ceiling per flow sets the share that was asked for.
  job.rate.line_bps = spec.background_share * line_bps * spec.testbed.fabric.spines / flows;
  return job;
}

}  // namespace cw::lab
