// SPDX-License-Identifier: Apache-2.0
//
// A small histogram of how late the prober's ticks were: four buckets per octave from 1 ns to about 4 s.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace cw::probe {

class Lateness {
 public:
  void Add(int64_t ns) {
    ns = std::max<int64_t>(ns, 1);
    const auto bucket = static_cast<size_t>(std::log2(static_cast<double>(ns)) * kPerOctave);
    ++counts_[std::min(bucket, counts_.size() - 1)];
    ++total_;
    max_ns_ = std::max(max_ns_, ns);
  }
  // Upper edge of the bucket that holds the quantile; 0 when nothing was added.
  int64_t Quantile(double q) const {
    if (total_ == 0) return 0;
    const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(total_)));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= std::max<uint64_t>(rank, 1)) {
        return std::min(max_ns_, static_cast<int64_t>(std::exp2(static_cast<double>(i + 1) / kPerOctave)));
      }
    }
    return max_ns_;
  }
  int64_t max_ns() const { return max_ns_; }
  void Reset() { *this = Lateness{}; }

 private:
  static constexpr int kPerOctave = 4;
  std::array<uint64_t, 32 * kPerOctave> counts_{};
  uint64_t total_ = 0;
  int64_t max_ns_ = 0;
};

}  // namespace cw::probe
