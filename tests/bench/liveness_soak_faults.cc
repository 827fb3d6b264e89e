// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/liveness_soak_faults.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/bench/end_agent.h"

namespace cw::bench {

void Starve(absl::Duration length) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&stop] {
      for (volatile uint64_t counted = 0; !stop.load(std::memory_order_relaxed);) counted = counted + 1;
    });
  }
  absl::SleepFor(length);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

absl::Status StopAgent(lab::Testbed& testbed, int host, absl::Duration length) {
  if (kill(testbed.agent_pid(host), SIGSTOP) != 0) return absl::ErrnoToStatus(errno, "stop an agent");
  absl::SleepFor(length);
  if (kill(testbed.agent_pid(host), SIGCONT) != 0) return absl::ErrnoToStatus(errno, "continue an agent");
  return absl::OkStatus();
}

absl::Status KillHost(lab::Testbed& testbed, int host, absl::Duration length) {
  using lab::LinkDirection;
  const LinkDirection links[] = {LinkDirection::HostToLeaf(host), LinkDirection::LeafToHost(host)};
  if (absl::Status killed = EndAgent(testbed, host, SIGKILL); !killed.ok()) return killed;
  absl::Status status;
  for (const LinkDirection& link : links) status.Update(testbed.fabric().SetFault(link, lab::Fault::Drop()).status());
  absl::SleepFor(length);
  for (const LinkDirection& link : links) status.Update(testbed.fabric().ClearFault(link).status());
  if (status.ok()) status = testbed.StartAgent(host);
  return status;
}

}  // namespace cw::bench
