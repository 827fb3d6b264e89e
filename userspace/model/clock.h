// SPDX-License-Identifier: Apache-2.0
//
// The one source of time of the agent. In the lab the agent is given a Clock with an injected error, as its BPF
// programs are, and nothing else tells the two apart.
#pragma once

#include <cstdint>

namespace cw {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds of the host's local clock. Any thread.
  virtual int64_t NowNs() const = 0;
  // The local clock at a time of CLOCK_MONOTONIC, for those who know that clock only. Any thread.
  virtual int64_t AtNs(int64_t monotonic_ns) const { return monotonic_ns; }
};

// CLOCK_MONOTONIC, which is what bpf_ktime_get_ns() reads.
class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// Nanoseconds of processor time that the calling thread has used. Any thread.
int64_t ThreadCpuNs();

// For tests and simulations. Not for use from several threads at once.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t now_ns = 0) : now_ns_(now_ns) {}
  int64_t NowNs() const override { return now_ns_; }
  void Set(int64_t now_ns) { now_ns_ = now_ns; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  int64_t now_ns_;
};

}  // namespace cw
