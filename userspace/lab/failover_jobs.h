// SPDX-License-Identifier: Apache-2.0
//
// The traffic of bench-failover. Pure; any thread.
#pragma once

#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/job.h"

namespace cw::lab {

// The flows whose stalls are measured, from host 0: at a steady pace, whatever the network says.
JobSpec MeasuredJob(const FailoverSpec& spec, int receiver);
// Flows that fill `background_share` of every uplink.
JobSpec BackgroundJob(const FailoverSpec& spec, int receiver, int flows);

}  // namespace cw::lab
