// SPDX-License-Identifier: Apache-2.0
//
// Whether this machine slept, or was moved to another host, since the last look: then its local clock is not the one
// that was measured. Sources of evidence, each used where it exists:
//   CLOCK_BOOTTIME − CLOCK_MONOTONIC, which grows by the length of a sleep;
//   the kernel's count of suspends, for sleeps shorter than the machine's persistent clock can tell;
//   the hypervisor's VMClock page (/dev/vmclock0, Linux 6.13; UAPI group specification 13), whose disruption marker
//   changes with every live migration and restored snapshot.
// Threads: one per object.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/publish/kernel_clocks.h"

namespace cw::publish {

enum class Disruption { kNone, kSlept, kMigrated };

struct DisruptionSources {
  std::string vmclock = "/dev/vmclock0";
  std::string suspend_count = "/sys/power/suspend_stats/success";
};

class DisruptionWatch {
 public:
  explicit DisruptionWatch(const DisruptionSources& sources = {});
  ~DisruptionWatch();
  DisruptionWatch(const DisruptionWatch&) = delete;
  DisruptionWatch& operator=(const DisruptionWatch&) = delete;

  // What happened since the last call; the first one says kNone. A file and a memory read.
  Disruption Poll(const ClockRelations& clocks);
  bool has_vmclock() const { return vmclock_ != nullptr; }

 private:
  bool SuspendCountChanged();
  bool MarkerChanged();

  DisruptionSources sources_;
  const unsigned char* vmclock_ = nullptr;  // mapped
  bool started_ = false;
  int64_t suspend_ns_ = 0;
  long suspends_ = -1;
  uint64_t marker_ = 0;
  bool marker_known_ = false;
};

}  // namespace cw::publish
