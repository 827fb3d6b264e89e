// SPDX-License-Identifier: Apache-2.0
//
// Whether this host has what a configuration names: NICs, folders, secrets, certificates. Told all at once, before
// anything is put into the kernel.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/host_net.h"
#include "userspace/config/config.h"
#include "userspace/model/addr.h"

namespace cw::agent {

// FailedPrecondition with a line for each thing that is missing or wrong, and what to do.
absl::Status CheckHost(const config::Config& config);

// Of [fleet] alone: its certificate is good, its spool can be kept. Not among CheckHost's: an agent starts without a
// fleet service. Changes nothing.
absl::Status CheckFleet(const config::Config& config);

// Of that NIC alone: a device has this very name, and the address that probes need is there.
absl::Status CheckNic(const HostNet& net, const config::NicConfig& nic);
absl::Status CheckNic(const config::NicConfig& nic);  // as the kernel lists devices and addresses now
// The address of its probes: the one that the configuration names, or the first of the device.
absl::StatusOr<Addr> AddressOf(const HostNet& net, const config::NicConfig& nic);

// Of those NICs of a configuration read anew whose name or address is another than what runs: what was wrong with the
// others before holds up nothing else.
absl::Status CheckNewNics(const config::Config& running, const config::Config& fresh);

// All of them as one; OK when all are.
absl::Status Together(const std::vector<absl::Status>& problems);

}  // namespace cw::agent
