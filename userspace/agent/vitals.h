// SPDX-License-Identifier: Apache-2.0
//
// What the agent keeps of itself, for people. Times: CLOCK_MONOTONIC, ns. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/agent/resource_meter.h"
#include "userspace/probe/prober.h"

namespace cw::agent {

struct Vitals {
  std::string host_name;
  int64_t started_ns = 0;
  int64_t newest_data_ns = 0;  // of the newest measurement
  probe::ProberStats prober;   // at the last second; reading them begins a new period of lateness
  double probe_rate_pps = 0;   // smoothed over about ten seconds
  int slowed = 1;              // see Pace::slowed()
  ResourceMeter meter;

  // Once a second. bpf_ns: run time of the programs.
  void Read(int64_t now_ns, const probe::ProberStats& stats, int64_t bpf_ns) {
    const auto sent = static_cast<double>(stats.probes - prober.probes);
    prober = stats;
    probe_rate_pps += 0.2 * (sent - probe_rate_pps);
    meter.Sample(now_ns, ResourceMeter::ProcessCpuNs(), bpf_ns);
  }
};

}  // namespace cw::agent
