// SPDX-License-Identifier: Apache-2.0
// Waits for what agents, switches and kernels do in their own time.
#pragma once

#include <functional>

#include "absl/time/clock.h"

namespace cw::lab {

// Whether `done` comes true before a limit that is far above what is expected. It is asked after each pause: longer
// ones spare an emulated processor.
inline bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Minutes(1),
                       absl::Duration pause = absl::Milliseconds(20)) {
  for (const absl::Time end = absl::Now() + limit; !done(); absl::SleepFor(pause)) {
    if (absl::Now() > end) return false;
  }
  return true;
}

// The stimulus itself, or the measurement, lasts so long (an outage, an agent's absence, bursts): not a wait for
// anything.
inline void Hold(absl::Duration duration) { absl::SleepFor(duration); }

}  // namespace cw::lab
