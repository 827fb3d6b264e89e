// SPDX-License-Identifier: Apache-2.0
//
// What a host suffers in the soak without any path being the cause. Each returns when it is over. One thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/lab/testbed.h"

namespace cw::bench {

// Twice as many threads as processors do nothing but count, with ordinary scheduling.
void Starve(absl::Duration length);

// SIGSTOP, and SIGCONT after `length`.
absl::Status StopAgent(lab::Testbed& testbed, int host, absl::Duration length);

// The agent is killed, and nothing comes from or to the host; after `length` the host is there again and its agent
// starts anew.
absl::Status KillHost(lab::Testbed& testbed, int host, absl::Duration length);

}  // namespace cw::bench
