// SPDX-License-Identifier: Apache-2.0
//
// Flows, jobs and collectives in SQLite: a row per batch, which Compact joins into blocks of ten minutes per host, one
// for each tier of the ladder. Blocks count into their tier's bytes and go with its paths. Threads: one at a time;
// whoever writes holds a transaction.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

class WorkTables {
 public:
  static constexpr int64_t kSpanS = 600;  // a block has times in (start, start + span]

  explicit WorkTables(Database& db) : db_(db) {}

  absl::Status Add(int64_t host, const WorkSample& sample);
  // Times in (from, to], with what is in no block yet.
  absl::StatusOr<std::vector<WorkSample>> Read(size_t tier, int64_t host, int64_t from_ns, int64_t to_ns);
  // Makes blocks that are complete, at most so many; how many were made.
  absl::StatusOr<int> MakeBlocks(int64_t now_ns, int most);

 private:
  absl::StatusOr<std::vector<WorkSample>> Blocks(size_t tier, int64_t host, int64_t from_s, int64_t to_s);
  absl::StatusOr<std::vector<WorkSample>> Fresh(int64_t host, int64_t from_s, int64_t to_s);
  absl::Status MakeBlock(int64_t host, int64_t start_s);
  absl::Status Put(size_t tier, int64_t host, int64_t start_s, const std::vector<WorkSample>& samples);

  Database& db_;
};

}  // namespace cw::fleet
