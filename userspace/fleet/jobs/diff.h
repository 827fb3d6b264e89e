// SPDX-License-Identifier: Apache-2.0
//
// What changed between two runs of a job, or between two times of one: bandwidth, delay, retransmits, ways, hosts.
// Queue pairs have other numbers in each run, so flows are compared by the NICs that they join. Pure; any thread.
#pragma once

#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/jobs/jobs.h"

namespace cw::fleet {

struct JobRun {
  const JoinedJob* job = nullptr;
  absl::Span<const HostWork> hosts;
};

struct DiffRules {
  double least_share = 0.1;        // of a bandwidth: less is the same
  double least_delay_ns = 10'000;  // of a median: less is the same …
  double many_times = 3;           // … and less than so many times as much, for one among its like, too
  double least_retransmits_s = 1;  // packets/s
  size_t most = 50;                // changes
};

// first, second, summary and changes; what weighs most first.
cwfabric::v1::FleetDiffJobsReply DiffJobs(const JobRun& first, const JobRun& second, const DiffRules& rules = {});

}  // namespace cw::fleet
