// SPDX-License-Identifier: Apache-2.0
//
// What the configuration's words mean to the rules that decide. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "userspace/config/config.h"
#include "userspace/control/causes.h"
#include "userspace/control/contention.h"
#include "userspace/model/allowed.h"
#include "userspace/probe/cadence.h"
#include "userspace/profile/profiles.h"

namespace cw::agent {

Mode ModelMode(config::Mode mode);
AllowOverrides Overrides(const config::AllowConfig& allow);
// What the file alone says may be done.
Allowed AllowedBy(const config::Config& config);
control::ContentionRules ContentionRulesOf(const config::SteeringConfig& steering);
control::CauseRules CauseRulesOf(const config::SteeringConfig& steering);
probe::CadenceOptions CadenceOf(const config::ProbeConfig& probe);
// Processor seconds per second that each of the two threads which never rest may use: the prober's and the main loop's.
double CpuShare(const config::ProbeConfig& probe);
// How many processors the prober may use.
int ProcessorsOf(const config::ProbeConfig& probe);
// See probe::MeshOptions: half of the paths silent together is more likely a host that stands still than so many dead
// paths.
uint32_t HalfDeadFactor(absl::Duration active_interval);
profile::ProfileOptions ProfileOptionsOf(const config::ProfileConfig& profile);

}  // namespace cw::agent
