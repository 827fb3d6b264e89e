// SPDX-License-Identifier: Apache-2.0
//
// A distribution of delays in base-2 exponential buckets, scale 4 (16 buckets an octave, relative error ≤ 2.2 %): the
// layout of OpenTelemetry's and Prometheus' exponential histograms, so an export loses nothing. Mergeable.
// Values are nanoseconds; values below 1 ns (clock error makes small delays negative) count in a bucket of their own.
// Value type; thread rule: as ordinary values. About 60 bytes, and 8 for each bucket in use. A bucket's count stops at
// 2³² − 1. Source: OpenTelemetry data model, ExponentialHistogram; the idea with its error bound: C. Masson, J. E. Rim,
// H. K. Lee, "DDSketch", VLDB 2019.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cw::telemetry {

class Sketch {
 public:
  void Add(int64_t value_ns);
  void Merge(const Sketch& other);
  void Clear();  // keeps the memory

  uint64_t count() const { return count_; }
  int64_t min_ns() const { return min_; }  // exact; 0 when empty
  int64_t max_ns() const { return max_; }
  double sum_ns() const { return sum_; }
  double MeanNs() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // Nearest rank, q in [0, 1]; within 2.2 % of the true value and inside [min, max]; 0 when empty.
  double QuantileNs(double q) const;
  // The distribution of max(0, value − base_ns), from bucket middles: within 2.2 % of the value, not of the difference.
  Sketch Above(int64_t base_ns) const;
  // Most delays of a path fall into a few buckets, so a sorted list is smaller than an array and as fast.
  struct Entry {
    int32_t bucket = 0;  // i: values in (2^(i/16), 2^((i+1)/16)]; kBelow: below 1 ns
    uint32_t count = 0;
  };
  static constexpr int32_t kBelow = INT32_MIN;
  const std::vector<Entry>& entries() const { return entries_; }  // by bucket
  size_t MemoryBytes() const;                                     // with what it points to
  void Shrink() { entries_.shrink_to_fit(); }                     // before it is put away

 private:
  static int32_t BucketOf(int64_t value_ns);
  // Middle of a bucket in the sense that the relative error is equal at both ends.
  static double MiddleNs(int32_t bucket);
  void AddTo(int32_t bucket, uint64_t count);

  uint64_t count_ = 0;
  int64_t min_ = 0, max_ = 0;
  double sum_ = 0;
  std::vector<Entry> entries_;  // by bucket
};

}  // namespace cw::telemetry
