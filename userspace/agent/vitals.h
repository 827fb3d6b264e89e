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
  ResourceMeter meter;
};

}  // namespace cw::agent
