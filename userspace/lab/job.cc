// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/job.h"

#include "absl/strings/str_format.h"

namespace cw::lab {
namespace {

absl::Status Wrong(const JobSpec& job, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat("job \"%s\": %s", job.name, what));
}

absl::Status CheckHosts(const JobSpec& job, int hosts) {
  const std::vector<JobPair> flows = FlowsOf(job);
  if (flows.empty()) return Wrong(job, "names no pair of hosts");
  for (const JobPair& p : flows) {
    if (p.source < 0 || p.source >= hosts || p.destination < 0 || p.destination >= hosts) {
      return Wrong(job,
                   absl::StrFormat("pair %d to %d, but there are hosts 0 to %d", p.source, p.destination, hosts - 1));
    }
    if (p.source == p.destination) return Wrong(job, absl::StrFormat("host %d cannot send to itself", p.source));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJob(const JobSpec& job, int hosts) {
  if (job.messages == 0 && job.duration <= absl::ZeroDuration()) return Wrong(job, "needs messages or a duration");
  if (job.kind == JobKind::kAllToAll && job.messages == 0) return Wrong(job, "an all-to-all needs messages per round");
  if (job.burst < absl::ZeroDuration() || job.burst_period < job.burst) {
    return Wrong(job, "burst_period is at least burst, which is not negative");
  }
  if (job.message_bytes == 0 || job.message_bytes > (uint64_t{1} << 31)) {
    return Wrong(job, "message_bytes must be between 1 and 2^31, as in verbs");
  }
  if (job.path_mtu < 256 || job.path_mtu > 4096) return Wrong(job, "path_mtu must be between 256 and 4096");
  if (job.window == 0 || job.window > (1u << 22)) return Wrong(job, "window must be between 1 and 2^22 packets");
  if (job.timeout > 31 || job.retry_cnt > 7) return Wrong(job, "timeout is 0 to 31 and retry_cnt 0 to 7");
  if (job.outstanding < 1 || job.rounds < 1 || job.qps_per_pair < 1 || job.ack_every < 1) {
    return Wrong(job, "outstanding, rounds, qps_per_pair and ack_every are at least 1");
  }
  if (job.rate.line_bps <= 0 || job.rate.min_bps <= 0 || job.rate.additive_bps <= 0) {
    return Wrong(job, "line, minimum and additive rate must be positive");
  }
  return CheckHosts(job, hosts);
}

std::vector<JobPair> FlowsOf(const JobSpec& job) {
  std::vector<JobPair> pairs = job.pairs;
  if (job.kind == JobKind::kAllToAll) {
    pairs.clear();
    for (int a : job.hosts) {
      for (int b : job.hosts) {
        if (a != b) pairs.push_back({a, b});
      }
    }
  }
  std::vector<JobPair> flows;
  for (const JobPair& p : pairs) {
    for (int i = 0; i < job.qps_per_pair; ++i) flows.push_back(p);
  }
  return flows;
}

QpConfig QpConfigOf(const JobSpec& job) {
  QpConfig c;
  c.start_psn = c.remote_start_psn = job.start_psn.value_or(0) & kPsnMask;
  c.path_mtu = job.path_mtu;
  c.window = job.window;
  c.ack_every = job.ack_every;
  c.timeout = job.timeout;
  c.retry_cnt = job.retry_cnt;
  c.packet_interval_ns = absl::ToInt64Nanoseconds(job.packet_interval);
  c.rate = job.rate;
  return c;
}

}  // namespace cw::lab
