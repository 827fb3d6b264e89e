// SPDX-License-Identifier: Apache-2.0
//
// How much one host may send: a token bucket over bytes (burst, then rate), so that an hour's spool is refilled fast
// and a host that floods is slowed alone. Pure; threads: one at a time.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace cw::fleet {

struct QuotaLimits {
  double bytes_per_s = 64 * 1024;  // 160 times a quiet host
  double burst_bytes = 64.0 * (1 << 20);
};

class Quota {
 public:
  explicit Quota(const QuotaLimits& limits) : limits_(limits), left_(limits.burst_bytes) {}

  // Zero: taken. Else it is over quota: how long until so much may come.
  absl::Duration Take(uint64_t bytes, absl::Time now);
  // What was taken came to more than was known; what comes next waits for it. A burst at most is owed.
  void Charge(uint64_t bytes);

 private:
  QuotaLimits limits_;
  double left_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace cw::fleet
