// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/liveness_soak_faults.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "userspace/lab/host_fault.h"

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
  if (absl::Status status = lab::StopAgent(testbed, host); !status.ok()) return status;
  absl::SleepFor(length);
  return lab::ContinueAgent(testbed, host);
}

absl::Status KillHost(lab::Testbed& testbed, int host, absl::Duration length) {
  if (absl::Status status = lab::KillAgent(testbed, host); !status.ok()) return status;
  absl::Status status = lab::CutPort(testbed.fabric(), host, true);
  absl::SleepFor(length);
  status.Update(lab::CutPort(testbed.fabric(), host, false));
  if (status.ok()) status = testbed.StartAgent(host);
  return status;
}

}  // namespace cw::bench
