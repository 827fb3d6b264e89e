// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/packed_sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "userspace/model/varint.h"

namespace cw {
namespace {

constexpr int kSketchPerOctave = 16;
constexpr uint32_t kGapEscape = 3, kCountLimit = 63;
constexpr uint64_t kCountMost = std::numeric_limits<uint32_t>::max();

uint32_t AddCounts(uint64_t a, uint64_t b) { return static_cast<uint32_t>(std::min(kCountMost, a + b)); }

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError("damaged sketch: " + std::string(what) +
                                    "; its sender is of another release or lies");
}

}  // namespace

uint32_t PackedSketch::IndexOf(uint64_t value_ns) {
  if (value_ns == 0) return 0;
  const double octaves = std::log2(static_cast<double>(value_ns));
  return std::min(kMostBuckets - 1, static_cast<uint32_t>(std::ceil(octaves * kSketchPerOctave)) + 1);
}

double PackedSketch::MiddleNs(uint32_t index) {
  if (index == 0) return 0;
  const double upper = std::exp2(static_cast<double>(index - 1) / kSketchPerOctave);
  const double lower = upper * std::exp2(-1.0 / kSketchPerOctave);
  return 2 * lower * upper / (lower + upper);
}

void PackedSketch::Add(uint64_t value_ns, uint32_t count) {
  if (count == 0) return;
  const uint32_t index = IndexOf(value_ns);
  const auto it =
      std::lower_bound(buckets.begin(), buckets.end(), index, [](const Bucket& b, uint32_t i) { return b.index < i; });
  if (it != buckets.end() && it->index == index) {
    it->count = AddCounts(it->count, count);
  } else {
    buckets.insert(it, {index, count});
  }
  max_ns = std::max(max_ns, value_ns);
}

void PackedSketch::Merge(const PackedSketch& other) {
  std::vector<Bucket> merged;
  merged.reserve(buckets.size() + other.buckets.size());
  auto a = buckets.begin();
  auto b = other.buckets.begin();
  while (a != buckets.end() || b != other.buckets.end()) {
    if (b == other.buckets.end() || (a != buckets.end() && a->index < b->index)) {
      merged.push_back(*a++);
    } else if (a == buckets.end() || b->index < a->index) {
      merged.push_back(*b++);
    } else {
      merged.push_back({a->index, AddCounts(a->count, b->count)});
      ++a, ++b;
    }
  }
  buckets = std::move(merged);
  max_ns = std::max(max_ns, other.max_ns);
}

uint64_t PackedSketch::Count() const {
  uint64_t count = 0;
  for (const Bucket& b : buckets) count += b.count;
  return count;
}

double PackedSketch::MeanNs() const {
  double sum = 0;
  for (const Bucket& b : buckets) sum += MiddleNs(b.index) * b.count;
  return buckets.empty() ? 0 : sum / static_cast<double>(Count());
}

double PackedSketch::QuantileNs(double q) const {
  const uint64_t count = Count();
  const auto rank = static_cast<uint64_t>(std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count)));
  if (rank >= count) return static_cast<double>(max_ns);
  uint64_t seen = 0;
  for (const Bucket& b : buckets) {
    seen += b.count;
    if (seen >= rank) return std::min(MiddleNs(b.index), static_cast<double>(max_ns));
  }
  return static_cast<double>(max_ns);
}

std::string PackedSketch::Pack() const {
  std::string bytes;
  if (buckets.empty()) return bytes;
  PutVarint(max_ns, &bytes);
  uint32_t expected = 0;
  for (const Bucket& b : buckets) {
    const uint32_t gap = b.index - expected;
    const uint32_t gap_bits = std::min(gap, kGapEscape);
    const uint32_t count_bits = b.count <= kCountLimit ? b.count : 0;
    bytes += static_cast<char>(gap_bits << 6 | count_bits);
    if (gap_bits == kGapEscape) PutVarint(gap - kGapEscape, &bytes);
    if (count_bits == 0) PutVarint(b.count - kCountLimit - 1, &bytes);
    expected = b.index + 1;
  }
  return bytes;
}

absl::StatusOr<PackedSketch> PackedSketch::Unpack(absl::string_view bytes) {
  PackedSketch sketch;
  if (bytes.empty()) return sketch;
  absl::string_view rest = bytes;
  if (!TakeVarint(&rest, &sketch.max_ns)) return Damaged("no maximum");
  uint64_t expected = 0;
  while (!rest.empty()) {
    const auto head = static_cast<uint8_t>(rest.front());
    rest.remove_prefix(1);
    uint64_t gap = head >> 6, count = head & kCountLimit, more = 0;
    if (gap == kGapEscape) {
      if (!TakeVarint(&rest, &more) || more >= kMostBuckets) return Damaged("a gap beyond all buckets");
      gap += more;
    }
    if (count == 0) {
      if (!TakeVarint(&rest, &more) || more > kCountMost - kCountLimit - 1) return Damaged("a count beyond 32 bits");
      count = more + kCountLimit + 1;
    }
    const uint64_t index = expected + gap;
    if (index >= kMostBuckets) return Damaged("more buckets than there are");
    sketch.buckets.push_back({static_cast<uint32_t>(index), static_cast<uint32_t>(count)});
    expected = index + 1;
  }
  if (sketch.buckets.empty()) return Damaged("a maximum without samples");
  if (IndexOf(sketch.max_ns) != sketch.buckets.back().index) return Damaged("its maximum is not in its last bucket");
  if (sketch.Pack() != bytes) return Damaged("not its shortest form");
  return sketch;
}

}  // namespace cw
