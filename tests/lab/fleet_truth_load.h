// SPDX-License-Identifier: Apache-2.0
//
// Other work on the machine, and hosts whose agents get too little of it. Each ends with its object, and after its
// limit in any case.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace cw::lab {

// Processes' worth of computing on every processor, at the default niceness, as `stress` has it.
class BusyMachine {
 public:
  explicit BusyMachine(int per_processor, absl::Duration limit = absl::Hours(1));
  ~BusyMachine();

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// A process runs for `runs` out of each `period`, by SIGSTOP and SIGCONT: what a load leaves to it that has taken its
// processors.
class Starved {
 public:
  Starved(pid_t pid, absl::Duration runs, absl::Duration period, absl::Duration limit = absl::Minutes(5));
  ~Starved();  // it runs again

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cw::lab
