// SPDX-License-Identifier: Apache-2.0
//
// A distribution of queueing delays as it travels and is stored: the buckets of telemetry::Sketch (base 2, scale 4, at
// most 2.2 % wrong) and the exact maximum, in about one byte per bucket in use. Mergeable without unpacking to samples.
//
// Bytes: the maximum as a varint (ns); then per bucket, ascending, one byte of 2 bits gap and 6 bits count: gap =
// buckets left out since the one before (3: a varint of what is above 3 follows), count 1..63 (0: a varint of what is
// above 63 follows, after the gap's). Bucket 0 stands for "no queue that can be told from zero". A sketch has one form
// only. No sample: no bytes. Pure value type; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cw {

struct PackedSketch {
  static constexpr uint32_t kMostBuckets = 1010;  // up to 2⁶³ ns

  struct Bucket {
    uint32_t index = 0;  // 0: none; else telemetry::Sketch's bucket + 2, so that 1 ns is index 1
    uint32_t count = 0;  // never 0; stops at 2³² − 1
    bool operator==(const Bucket&) const = default;
  };
  std::vector<Bucket> buckets;  // by index
  uint64_t max_ns = 0;

  static uint32_t IndexOf(uint64_t value_ns);  // 0 for 0
  static double MiddleNs(uint32_t index);      // 0 for 0

  void Add(uint64_t value_ns, uint32_t count = 1);
  void Merge(const PackedSketch& other);
  uint64_t Count() const;
  double MeanNs() const;              // from bucket middles; 0 when empty
  double QuantileNs(double q) const;  // nearest rank, q in [0, 1], never above max_ns; 0 when empty
  bool empty() const { return buckets.empty(); }
  bool operator==(const PackedSketch&) const = default;

  std::string Pack() const;
  // InvalidArgument: not what Pack makes of any sketch.
  static absl::StatusOr<PackedSketch> Unpack(absl::string_view bytes);
};

}  // namespace cw
