// SPDX-License-Identifier: Apache-2.0
//
// Samples of one host as one compressed blob: for each path its samples in order of time, numbers as differences to the
// one before. Paths are named by numbers that the engine gives out. About a third of what they take on the wire, since
// what is alike lies side by side. zlib, level 1. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

struct NumberedSample {
  uint64_t path = 0;  // instead of sample.key, which is not in the blob
  PathSample sample;
  bool operator==(const NumberedSample&) const = default;
};

// Sorts by path and time; of two samples of one path and time the later in the list stays.
void SortSamples(std::vector<NumberedSample>& samples);

// `samples` are sorted.
std::string PackSamples(const std::vector<NumberedSample>& samples);
// DataLoss: not what PackSamples made.
absl::StatusOr<std::vector<NumberedSample>> UnpackSamples(absl::string_view blob);

// Sorted samples merged into one per path and interval, which begins at a multiple of it; a sample belongs to the
// interval that its time ends in. Sketches and counts add up, the base is the least, state and hops are the worst and
// the last.
std::vector<NumberedSample> Coarsen(const std::vector<NumberedSample>& samples, absl::Duration interval);

}  // namespace cw::fleet
