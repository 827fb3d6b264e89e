// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/path_totals.h"

namespace cw::metrics {

void DelayHistogram::Add(int64_t delay_ns) {
  ++count_;
  sum_ns_ += static_cast<double>(delay_ns);
  for (size_t i = 0; i < kBounds; ++i) {
    if (delay_ns > BoundNs(i)) continue;
    ++in_[i];
    return;
  }
}

uint64_t DelayHistogram::Cumulative(size_t i) const {
  uint64_t sum = 0;
  for (size_t b = 0; b <= i && b < kBounds; ++b) sum += in_[b];
  return sum;
}

void FlowCounts::AddGrowth(const FlowCounts& before, const FlowCounts& now) {
  const bool anew = now.packets < before.packets;
  for (uint64_t FlowCounts::*field :
       {&FlowCounts::packets, &FlowCounts::bytes, &FlowCounts::ce, &FlowCounts::cnps, &FlowCounts::seq_naks,
        &FlowCounts::rnr_naks, &FlowCounts::other_naks, &FlowCounts::missing, &FlowCounts::duplicates}) {
    const uint64_t from = anew || now.*field < before.*field ? 0 : before.*field;
    this->*field += now.*field - from;
  }
}

}  // namespace cw::metrics
