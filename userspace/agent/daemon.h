// SPDX-License-Identifier: Apache-2.0
//
// The command line of the agent's program, shared by cwagentd and the lab's cwlab-agentd, which differ only in where
// the time comes from.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "sync/nic_clock.h"
#include "userspace/agent/fleet_clock/clock_anchor.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"

namespace cw::agent {

struct TimeSource {
  std::shared_ptr<const Clock> clock;
  std::string lab_clock = "";  // pinned path of a hidden clock, "" = none
  KernelTime kernel = KernelTime::Real();
  std::string lab_nic = "";  // pinned path of a simulated NIC's clock, "" = none; and the clock
  std::function<std::unique_ptr<sync::NicClock>(std::shared_ptr<const Clock> local)> lab_nic_clock = nullptr;
};

// Called with the configuration and its file's path, before anything is loaded.
using TimeSourceFn = std::function<absl::StatusOr<TimeSource>(const config::Config&, const std::string& config_path)>;

// The exit status of main: 0 ok, 1 failed, 2 usage.
int DaemonMain(int argc, char** argv, const char* name, const TimeSourceFn& time_source);

}  // namespace cw::agent
