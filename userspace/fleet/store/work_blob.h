// SPDX-License-Identifier: Apache-2.0
//
// Samples of one host's work as one compressed blob: each flow's name once, then per sample its flows with numbers as
// differences to the sample before. zlib, level 1. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

// What a sample takes in memory, about; packed it is never more.
size_t MemoryOf(const WorkSample& sample);

// By time; those that tell the same twice stay once.
void SortWork(std::vector<WorkSample>& samples);

std::string PackWork(const std::vector<WorkSample>& samples);
// DataLoss: not what PackWork made.
absl::StatusOr<std::vector<WorkSample>> UnpackWork(absl::string_view blob);

// Sorted samples merged into one per interval, which ends at a multiple of it; a sample belongs to the interval that
// its time ends in. Of flows counts add up, sketches merge, paths are the last; of each rank the last word stays;
// collectives stay all.
std::vector<WorkSample> CoarsenWork(const std::vector<WorkSample>& samples, absl::Duration interval);
// All of them as one, from the first's begin to the last's end.
WorkSample MergeWork(const std::vector<WorkSample>& samples);

}  // namespace cw::fleet
