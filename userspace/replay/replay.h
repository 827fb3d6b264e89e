// SPDX-License-Identifier: Apache-2.0
//
// Decides a recording again: the same rule, on the same observations, from the same memory. Under the recorded rules
// every decision comes out the same to the bit, or the release decides otherwise than the one that recorded.
// Under other rules the observations stay those that the recorded decisions led to: what is compared is what would have
// been decided on them, not how the fabric would have gone on.
// Pure but for the reader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/replay/reader.h"

namespace cw::replay {

struct ReplayedWindow {
  uint64_t number = 0;  // from 0
  uint64_t offset = 0;  // of its record
  const Window& recorded;
  const control::Decision& decided;  // now
  bool same = false;
};

struct ReplayResult {
  uint64_t windows = 0;
  uint64_t moves_recorded = 0, moves_decided = 0;
  uint64_t different = 0;        // windows
  uint64_t first_different = 0;  // number of the first, where there is one
  absl::Status end;              // why it ended before the file did: what stands before it was decided
};

using RuleChanges = std::vector<std::pair<std::string, double>>;

// InvalidArgument: a rule's name or value, or the head's memory.
absl::StatusOr<ReplayResult> Replay(Reader& reader, const RuleChanges& rules,
                                    const std::function<void(const ReplayedWindow&)>& each);

}  // namespace cw::replay
