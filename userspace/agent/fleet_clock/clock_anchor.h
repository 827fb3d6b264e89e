// SPDX-License-Identifier: Apache-2.0
//
// This host's own tie to TAI: the kernel's real-time clock, where something (chronyd, phc2sys) disciplines it and says
// so to the kernel (adjtimex(2)). How far it may be off is the kernel's maxerror, which whoever disciplines the clock
// sets and the kernel lets grow by 500 ppm; since phc2sys sets it to 0, there is a configured least bound.
// Thread rule: one thread.
#pragma once

#include <sys/timex.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "sync/agreement.h"
#include "userspace/model/clock.h"

namespace cw::agent {

// The kernel as this file sees it; tests put another one in its place.
struct KernelTime {
  std::function<int(timex*)> adjtimex;
  std::function<int64_t()> tai_ns;  // CLOCK_TAI
  static KernelTime Real();
};

class RealtimeAnchor {
 public:
  RealtimeAnchor(std::shared_ptr<const Clock> local, absl::Duration least_bound,
                 KernelTime kernel = KernelTime::Real());

  // has = false when the kernel's clock cannot be believed; note() then says why, and what to do.
  sync::AnchorReading Read();
  const std::string& note() const { return note_; }

 private:
  std::shared_ptr<const Clock> local_;
  int64_t least_bound_ns_;
  KernelTime kernel_;
  std::string note_;
};

}  // namespace cw::agent
