// SPDX-License-Identifier: Apache-2.0
//
// The time by which orders of people end (drains, mutes), and by which the store lets go. A wall clock that somebody
// sets, or that is wrong after a boot, ends nothing early: where the kernel does not say that its clock is
// synchronised, only time that ran counts, from the newest time that the store knows, or the wall clock where that is
// behind. Then the time that the service was not running does not count either, and an order ends late rather than
// early. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/time/time.h"

namespace cw::fleet {

class OrderClock {
 public:
  struct Reads {
    std::function<int64_t()> wall_ns;
    std::function<absl::Time()> steady;
    std::function<bool()> synchronised;  // what somebody keeps right: NTP, PTP that tells the kernel so
  };
  static Reads OfSystem();

  // newest_ns: that the store knows, 0: none.
  explicit OrderClock(int64_t newest_ns, Reads reads = OfSystem());

  int64_t NowNs();
  // A time of this clock as the wall clock has it, for people. 0 stays 0.
  int64_t WallOf(int64_t ns);

 private:
  const Reads reads_;
  std::mutex mutex_;  // of what follows
  int64_t now_ns_;
  absl::Time at_;
};

}  // namespace cw::fleet
