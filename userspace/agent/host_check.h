// SPDX-License-Identifier: Apache-2.0
//
// Whether this host has what a configuration names: NICs, folders, secrets, certificates. Told all at once, before
// anything is put into the kernel.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "userspace/config/config.h"

namespace cw::agent {

// FailedPrecondition with a line for each thing that is missing or wrong, and what to do.
absl::Status CheckHost(const config::Config& config);

// Of [fleet] alone: its certificate is good, its spool can be kept. Not among CheckHost's: an agent starts without a
// fleet service. Changes nothing.
absl::Status CheckFleet(const config::Config& config);

// Of that NIC alone: it is there, and has the address that probes need.
absl::Status CheckNic(const config::NicConfig& nic);

// All of them as one; OK when all are.
absl::Status Together(const std::vector<absl::Status>& problems);

}  // namespace cw::agent
