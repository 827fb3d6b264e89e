// SPDX-License-Identifier: Apache-2.0
//
// What a host suffers without any path being the cause. Thread rule: as Testbed's.
#pragma once

#include "absl/status/status.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

// Sends the signal to a host's agent and waits until its process is gone. Its programs and maps stay;
// Testbed::StartAgent starts the next one. DeadlineExceeded: it does not go within 30 s.
absl::Status EndAgent(Testbed& testbed, int host, int signal);
absl::Status KillAgent(Testbed& testbed, int host);  // by SIGKILL
// SIGSTOP and SIGCONT.
absl::Status StopAgent(Testbed& testbed, int host);
absl::Status ContinueAgent(Testbed& testbed, int host);

// Nothing comes from a host's port or reaches it, silently, or again. port: a host's number, or a second NIC's.
absl::Status CutPort(Fabric& fabric, int port, bool cut);
// The same of all ports of a switch, whose carriers stay: it forwards nothing. Host ports of second NICs count.
absl::Status CutLeaf(Testbed& testbed, int leaf, bool cut);
absl::Status CutSpine(Fabric& fabric, int spine, bool cut);
// A leaf without power, or with it again: all that was plugged into it has no carrier.
absl::Status SetLeafPower(Testbed& testbed, int leaf, bool on);

// A host without power: its ports have no carrier, nor has its management port, so that not even the end of its
// connections is told; its agent and what that put into the kernel are gone. Not for host 0 where a service runs there.
absl::Status PowerOff(Testbed& testbed, int host);
// Its ports are back and a fresh agent runs, with the files of the one before.
absl::Status PowerOn(Testbed& testbed, int host);

}  // namespace cw::lab
