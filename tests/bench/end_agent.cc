// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/end_agent.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace cw::bench {

absl::Status EndAgent(lab::Testbed& testbed, int host, int signal) {
  const pid_t pid = testbed.agent_pid(host);
  if (kill(pid, signal) != 0) return absl::ErrnoToStatus(errno, "end an agent");
  for (const absl::Time deadline = absl::Now() + absl::Seconds(30); waitpid(pid, nullptr, WNOHANG) == 0;) {
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError(absl::StrFormat("the agent of h%d does not end on signal %d", host, signal));
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

}  // namespace cw::bench
