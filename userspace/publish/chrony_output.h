// SPDX-License-Identifier: Apache-2.0
//
// Fleet time as a reference clock of chronyd on this host, so that the kernel's CLOCK_REALTIME follows the fleet's TAI.
//   SOCK (preferred): chronyd listens on a unix datagram socket:  refclock SOCK /run/chrony/cwfabric.sock refid CWFB
//   poll 2 SHM: a System V segment, as ntpd's driver 28 has it:          refclock SHM 2 refid CWFB poll 2
// Sources: chrony.conf(5), "refclock"; the layouts are those of chrony's refclock_sock.c and of ntpd's SHM driver.
//
// Not on a host whose own CLOCK_REALTIME is the anchor that the fleet gets TAI from: it would follow itself.
// Never blocks; a chronyd that is not there costs a system call per sample. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::publish {

struct ChronySample {
  int64_t realtime_ns = 0;  // CLOCK_REALTIME when the sample was taken
  int64_t utc_ns = 0;       // what UTC was then
  int leap = 0;             // LeapState::announced
};

class ChronyOutput {
 public:
  virtual ~ChronyOutput() = default;
  // Unavailable: chronyd is not there (now); try again with the next sample.
  virtual absl::Status Send(const ChronySample& sample) = 0;
};

// Nothing is created at `path`: that is chronyd's.
absl::StatusOr<std::unique_ptr<ChronyOutput>> MakeChronySock(const std::string& path);
// unit: 0 to 255; 0 and 1 can be used by root only. Creates the segment if chronyd has not (mode 0600).
// precision_log2_s: of the samples, as chronyd is told.
absl::StatusOr<std::unique_ptr<ChronyOutput>> MakeChronyShm(int unit, int precision_log2_s = -24);

}  // namespace cw::publish
