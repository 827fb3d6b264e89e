// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/quota.h"

#include <algorithm>

namespace cw::fleet {

absl::Duration Quota::Take(uint64_t bytes, absl::Time now) {
  if (last_ != absl::InfinitePast() && now > last_) {
    left_ = std::min(limits_.burst_bytes, left_ + absl::ToDoubleSeconds(now - last_) * limits_.bytes_per_s);
  }
  last_ = std::max(last_, now);
  // One that is larger than the burst could never come: it takes all there is.
  const double wanted = std::min(static_cast<double>(bytes), limits_.burst_bytes);
  if (left_ >= wanted) {
    left_ -= wanted;
    return absl::ZeroDuration();
  }
  return absl::Seconds((wanted - left_) / limits_.bytes_per_s);
}

void Quota::Charge(uint64_t bytes) { left_ = std::max(left_ - static_cast<double>(bytes), -limits_.burst_bytes); }

}  // namespace cw::fleet
