// SPDX-License-Identifier: Apache-2.0
//
// What happens to an agent in service: it is killed, restarted, upgraded, told to read its configuration again. Each
// returns when the agent answers, with what it took. Thread: that of the testbed.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "userspace/lab/testbed.h"

namespace cw::bench {

enum class Cycle {
  kNothing,  // the control: as long, and nobody does anything
  kKill,     // SIGKILL, and a start
  kRestart,  // SIGTERM, and a start
  kUpgrade,  // SIGTERM, another release's programs in place of ours (other_release.bpf.c), and a start, which puts ours
             // back: two exchanges on the same maps
  kReload,   // SIGHUP
};
inline constexpr Cycle kCycles[] = {Cycle::kNothing, Cycle::kKill, Cycle::kRestart, Cycle::kUpgrade, Cycle::kReload};
std::string NameOf(Cycle cycle);

struct CycleTimes {
  double end_ms = 0;     // from the signal until the process is gone; kReload: 0
  double down_ms = 0;    // from the signal until the agent answers a question; kReload: until it says that it has read
  double probes_ms = 0;  // from the signal until requests leave again, at most; 0: they never stopped
};

// An error: the agent did not come back, or what should have been exchanged was not.
absl::StatusOr<CycleTimes> Run(Cycle cycle, lab::Testbed& testbed, int host);

}  // namespace cw::bench
