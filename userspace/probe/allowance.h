// SPDX-License-Identifier: Apache-2.0
//
// How much of its budget of work (of probes, for example) a thread can afford: as much as keeps it within its share of
// the host's processor time. Above it the budget shrinks at once to what the share does for; well below it grows back
// by a tenth per look. A slow or a busy host is probed more rarely then, and its jobs keep their processors. Pure:
// times come in. Thread rule: one thread.
#pragma once

#include <cstdint>

namespace cw::probe {

class CpuAllowance {
 public:
  static constexpr int64_t kPeriodNs = 500'000'000;
  static constexpr double kLeast = 0.01;  // of the budget, however slow the host is

  // most: processor seconds per second; 0 or less: no limit. least: of the budget, in any case.
  explicit CpuAllowance(double most, double least = kLeast) : most_(most), least_(least) {}

  // Whether a look now would judge: the thread's time costs a system call.
  bool Due(int64_t now_ns) const { return most_ > 0 && (since_ns_ == 0 || now_ns - since_ns_ >= kPeriodNs); }
  // cpu_ns: what the thread has used so far. Judges once per period. Whether factor() is another now.
  bool Look(int64_t now_ns, int64_t cpu_ns);
  // What the budget is to be multiplied with, `least` to 1.
  double factor() const { return factor_; }

 private:
  double most_, least_;
  double factor_ = 1;
  int64_t since_ns_ = 0, cpu_before_ns_ = 0;  // of the present period; since_ns_ 0: none has begun
};

}  // namespace cw::probe
