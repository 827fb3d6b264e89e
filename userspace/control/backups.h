// SPDX-License-Identifier: Apache-2.0
//
// Where flows go first when their path dies. For each path of a pair the others that share the fewest links with it,
// since what killed it may have killed those, too, and of these the ones that do not queue: a link with less room than
// its equals (half its rate, somebody's load) queues at the load that the others carry, and is left out while it does.
// The kernel spreads a dead path's flows over these in turn, and takes any live path when none of them lives.
//
// Pure. One thread per object.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "userspace/control/contention.h"
#include "userspace/model/names.h"

namespace cw::control {

struct BackupRules {
  double smooth = 0.125;           // weight of a window in a path's remembered queue
  double queue_factor = 2;         // as good as the best: a queue below so many times its …
  double queue_slack_ns = 50'000;  // … and so much more
};

class Backups {
 public:
  explicit Backups(const BackupRules& rules = {}) : rules_(rules) {}

  // Call once per window with all paths of the pair. [s]: the mask of slots to which flows of slot s go first; 0: there
  // is no path s, or none besides it.
  std::array<uint16_t, kMaxSlots> Step(absl::Span<const PathObservation> paths);

 private:
  uint16_t Best(absl::Span<const PathObservation> paths, uint16_t among) const;

  BackupRules rules_;
  std::array<double, kMaxSlots> queue_ns_{};  // smoothed
};

}  // namespace cw::control
