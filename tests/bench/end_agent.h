// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "userspace/lab/testbed.h"

namespace cw::bench {

// Sends the signal to a host's agent and waits until its process is gone. DeadlineExceeded: it does not go.
absl::Status EndAgent(lab::Testbed& testbed, int host, int signal);

}  // namespace cw::bench
