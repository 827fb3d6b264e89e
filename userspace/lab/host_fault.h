// SPDX-License-Identifier: Apache-2.0
//
// What a host suffers without any path being the cause. Thread rule: as Testbed's.
#pragma once

#include "absl/status/status.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

// SIGKILL, and waited for. Its programs and maps stay; Testbed::StartAgent starts the next one.
absl::Status KillAgent(Testbed& testbed, int host);
// SIGSTOP and SIGCONT.
absl::Status StopAgent(Testbed& testbed, int host);
absl::Status ContinueAgent(Testbed& testbed, int host);

// Nothing comes from a host's port or reaches it, silently, or again. port: a host's number, or a second NIC's.
absl::Status CutPort(Fabric& fabric, int port, bool cut);

}  // namespace cw::lab
