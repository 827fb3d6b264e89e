// SPDX-License-Identifier: Apache-2.0
//
// Builds and removes the lab's namespaces, links, addresses, routes, queues and switch programs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "userspace/lab/fabric_state.h"
#include "userspace/lab/switch.h"

namespace cw::lab {

// Makes everything that state.spec describes. Fills in state.maps and state.ecmp_seeded. On an error the caller removes
// what was made (RemoveLab).
absl::Status BuildLab(FabricState& state);

// Ends recorded processes, deletes namespaces, pins and files of this lab; Ok when there is nothing.
absl::Status RemoveLab(const std::string& lab);

// One more host port: a tap device, owned by nobody until QEMU opens it. state.taps already has it.
absl::Status BuildTapPort(const FabricSpec& spec, const TapPort& tap);
absl::Status BuildMgmtTap(const FabricSpec& spec, const std::string& device);

// A veth between the leaf and the host: `nic.device` in the leaf, `device` in the host.
absl::Status BuildHostNic(const FabricSpec& spec, const TapPort& nic, const std::string& device);

}  // namespace cw::lab
