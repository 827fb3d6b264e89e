// SPDX-License-Identifier: Apache-2.0
//
// A command-line client that takes commands on stdin (chronyc, pmc), asked the same at a fixed rate.
// Thread rule: one thread, besides the poller's own.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric_process.h"

namespace cw::bench {

class Poller {
 public:
  Poller() = default;
  ~Poller() { (void)Stop(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // out: file for all that the client prints; replaced.
  absl::Status Start(const std::vector<std::string>& argv, const std::string& command, absl::Duration period,
                     const std::string& out);
  // Ends the client, which flushes it, and returns what it printed.
  absl::StatusOr<std::string> Stop();

 private:
  void Run(std::string line, absl::Duration period);

  lab::ProcessId process_;
  int stdin_ = -1;
  std::string out_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cw::bench
