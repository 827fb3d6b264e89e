// SPDX-License-Identifier: Apache-2.0
//
// When the machine itself stood still. A virtual processor that its hypervisor takes away stops switches, senders and
// agents alike, and no figure of milliseconds means anything then. One thread per processor, above all others
// (SCHED_FIFO, CAP_SYS_NICE), sleeps for a millisecond again and again and notes by how much more it slept: nothing in
// the guest but interrupts can make it late.
// Thread-safe after Start; the destructor ends the threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::lab {

struct MachineStall {
  int64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC
};

// The longest stall that overlaps [from_ns, to_ns), in ms; 0: none. Pure.
double LongestStallMs(const std::vector<MachineStall>& stalls, int64_t from_ns, int64_t to_ns);

class StallWitness {
 public:
  static absl::StatusOr<std::unique_ptr<StallWitness>> Start();
  ~StallWitness();

  std::vector<MachineStall> Stalls() const;  // longer than 0.5 ms, of all processors

 private:
  StallWitness() = default;
  void Watch();

  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<MachineStall> stalls_;
  std::vector<std::thread> threads_;
};

}  // namespace cw::lab
