// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/host_fault.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace cw::lab {
namespace {

absl::Status Signal(const Testbed& testbed, int host, int signal, const char* what) {
  if (kill(testbed.agent_pid(host), signal) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " the agent of h", host));
}

}  // namespace

absl::Status EndAgent(Testbed& testbed, int host, int signal) {
  if (absl::Status status = Signal(testbed, host, signal, "end"); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (waitpid(testbed.agent_pid(host), nullptr, WNOHANG) == 0) {
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError(absl::StrCat("the agent of h", host, " does not end on signal ", signal));
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

absl::Status KillAgent(Testbed& testbed, int host) { return EndAgent(testbed, host, SIGKILL); }

absl::Status StopAgent(Testbed& testbed, int host) { return Signal(testbed, host, SIGSTOP, "stop"); }

absl::Status ContinueAgent(Testbed& testbed, int host) { return Signal(testbed, host, SIGCONT, "continue"); }

absl::Status CutPort(Fabric& fabric, int port, bool cut) {
  absl::Status status;
  for (const LinkDirection& link : {LinkDirection::HostToLeaf(port), LinkDirection::LeafToHost(port)})
    status.Update(fabric.SetFault(link, cut ? Fault::Drop() : Fault::None()).status());
  return status;
}

}  // namespace cw::lab
