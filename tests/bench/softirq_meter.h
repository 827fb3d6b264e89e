// SPDX-License-Identifier: Apache-2.0
//
// CPU time of another process, and how much of it soft interrupts took (tests/bench/softirq.bpf.c): the kernel counts
// these as time of the task that they interrupt. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace cw::bench {

class SoftirqMeter {
 public:
  struct Reading {
    int64_t at_ns = 0;       // CLOCK_MONOTONIC
    int64_t cpu_ns = 0;      // of the process, all threads, user and system, soft interrupts included
    int64_t softirq_ns = 0;  // of that
    int64_t OwnNs() const { return cpu_ns - softirq_ns; }
  };

  static absl::StatusOr<std::unique_ptr<SoftirqMeter>> Start(pid_t process);
  virtual ~SoftirqMeter() = default;
  virtual absl::StatusOr<Reading> Read() const = 0;
};

}  // namespace cw::bench
