// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cw::lab {

void LatencyHistogram::Add(int64_t ns) {
  const auto v = static_cast<uint64_t>(std::max<int64_t>(ns, 0));
  // Below 2^kSubBits the value is its own bucket; above, the top bit chooses the octave and the next bits the part.
  const int octave = std::max(0, static_cast<int>(std::bit_width(v)) - 1 - kSubBits);
  const size_t index = (static_cast<size_t>(octave) << kSubBits) + static_cast<size_t>(v >> octave);
  ++buckets_[std::min<size_t>(index, kBuckets - 1)];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
}

int64_t LatencyHistogram::QuantileNs(double q) const {
  if (count_ == 0) return 0;
  if (q >= 1) return max_ns_;
  const auto rank = static_cast<uint64_t>(std::ceil(std::max(q, 0.0) * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen < std::max<uint64_t>(rank, 1)) continue;
    const size_t octave = i < (2u << kSubBits) ? 0 : (i >> kSubBits) - 1;
    const uint64_t low = static_cast<uint64_t>(i - (octave << kSubBits)) << octave;
    return std::min(max_ns_, static_cast<int64_t>(low + (uint64_t{1} << octave) / 2));
  }
  return max_ns_;
}

ArrivalRing::ArrivalRing(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {}

void ArrivalRing::Add(int64_t ns, bool in_order) {
  const uint64_t slot = static_cast<uint64_t>(ns) << 1 | (in_order ? 1 : 0);
  if (slots_.size() < capacity_) {
    slots_.push_back(slot);
  } else {
    slots_[added_ % capacity_] = slot;
  }
  ++added_;
}

ArrivalRing::After ArrivalRing::FirstAfter(int64_t ns) const {
  After result;
  const uint64_t kept = slots_.size();
  const uint64_t oldest = added_ - kept;
  auto at = [&](uint64_t i) { return slots_[(oldest + i) % capacity_]; };
  auto time = [&](uint64_t i) { return static_cast<int64_t>(at(i) >> 1); };
  uint64_t low = 0;
  for (uint64_t high = kept; low < high;) {
    const uint64_t mid = (low + high) / 2;
    if (time(mid) < ns) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  result.complete = oldest == 0 || low > 0;
  if (low < kept) result.any_ns = time(low);
  for (; low < kept && !result.in_order_ns; ++low) {
    if (at(low) & 1) result.in_order_ns = time(low);
  }
  return result;
}

ReceiveStats::ReceiveStats(int64_t origin_ns, int64_t bin_ns, size_t max_bins)
    : origin_ns_(origin_ns), bin_ns_(std::max<int64_t>(bin_ns, 1)), max_bins_(max_bins) {}

void ReceiveStats::OnData(int64_t now_ns, uint32_t bytes, bool in_order) {
  ++packets_;
  if (!in_order) return;
  if (last_ns_ != 0 && now_ns - last_ns_ > longest_gap_.Length()) longest_gap_ = {last_ns_, now_ns};
  if (first_ns_ == 0) first_ns_ = now_ns;
  last_ns_ = now_ns;
  bytes_ += bytes;
  const auto bin = static_cast<size_t>(std::max<int64_t>(0, now_ns - origin_ns_) / bin_ns_);
  if (bin >= max_bins_) return;
  if (bin >= bins_.size()) bins_.resize(bin + 1);
  bins_[bin] += bytes;
}

void SendStats::OnStall(const Gap& stall) {
  if (stall.Length() > longest_stall.Length()) longest_stall = stall;
  if (stall.Length() < kLongStallNs) return;
  if (stalls.size() >= kStalls) stalls.erase(stalls.begin());
  stalls.push_back(stall);
}

void ReceiveStats::OnMessage(uint64_t bytes) {
  ++messages_;
  message_bytes_ += bytes;
}

}  // namespace cw::lab
