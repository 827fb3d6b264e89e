// SPDX-License-Identifier: Apache-2.0
#include "userspace/telemetry/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cw::telemetry {
namespace {

constexpr int kBucketsPerOctave = 16;  // scale 4
constexpr int32_t kLowBucket = Sketch::kBelow;

}  // namespace

// Bucket i holds (2^(i/16), 2^((i+1)/16)]; 1 ns itself is the upper end of bucket −1.
int32_t Sketch::BucketOf(int64_t value_ns) {
  if (value_ns < 1) return kLowBucket;
  return static_cast<int32_t>(std::ceil(std::log2(static_cast<double>(value_ns)) * kBucketsPerOctave)) - 1;
}

double Sketch::MiddleNs(int32_t bucket) {
  if (bucket == kLowBucket) return 0;
  const double lower = std::exp2(static_cast<double>(bucket) / kBucketsPerOctave);
  const double upper = std::exp2(static_cast<double>(bucket + 1) / kBucketsPerOctave);
  return 2 * lower * upper / (lower + upper);
}

void Sketch::AddTo(int32_t bucket, uint64_t count) {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), bucket,
                                   [](const Entry& e, int32_t b) { return e.bucket < b; });
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  if (it != entries_.end() && it->bucket == bucket) {
    it->count = static_cast<uint32_t>(std::min(kMost, it->count + count));
  } else {
    entries_.insert(it, {bucket, static_cast<uint32_t>(std::min(kMost, count))});
  }
}

void Sketch::Add(int64_t value_ns) {
  AddTo(BucketOf(value_ns), 1);
  min_ = count_ == 0 ? value_ns : std::min(min_, value_ns);
  max_ = count_ == 0 ? value_ns : std::max(max_, value_ns);
  sum_ += static_cast<double>(value_ns);
  ++count_;
}

void Sketch::Merge(const Sketch& other) {
  if (other.count_ == 0) return;
  for (const Entry& e : other.entries_) AddTo(e.bucket, e.count);
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

void Sketch::Clear() {
  entries_.clear();
  count_ = 0;
  min_ = max_ = 0;
  sum_ = 0;
}

double Sketch::QuantileNs(double q) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count_)));
  if (rank <= 1) return static_cast<double>(min_);
  if (rank >= count_) return static_cast<double>(max_);
  uint64_t seen = 0;
  for (const Entry& e : entries_) {
    seen += e.count;
    if (seen >= rank) {
      // Values below 1 ns share a bucket: all that is known of them is the minimum and that they are no delays.
      const double middle = e.bucket == kLowBucket ? 0 : MiddleNs(e.bucket);
      return std::clamp(middle, static_cast<double>(min_), static_cast<double>(max_));
    }
  }
  return static_cast<double>(max_);
}

Sketch Sketch::Above(int64_t base_ns) const {
  Sketch out;
  if (count_ == 0) return out;
  const auto above = [&](double value) { return std::max<int64_t>(0, std::llround(value) - base_ns); };
  for (const Entry& e : entries_) {
    const double value = std::clamp(MiddleNs(e.bucket), static_cast<double>(min_), static_cast<double>(max_));
    out.AddTo(BucketOf(above(value)), e.count);
    out.sum_ += static_cast<double>(above(value)) * e.count;
  }
  out.count_ = count_;
  out.min_ = above(static_cast<double>(min_));
  out.max_ = above(static_cast<double>(max_));
  return out;
}

size_t Sketch::MemoryBytes() const { return sizeof(Sketch) + entries_.capacity() * sizeof(Entry); }

}  // namespace cw::telemetry
