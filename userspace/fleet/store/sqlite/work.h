// SPDX-License-Identifier: Apache-2.0
//
// Flows, jobs and collectives in SQLite: a row per batch, which Compact joins into blocks of ten minutes per host, one
// for each tier of the ladder. Blocks count into their tier's bytes and go with its paths, rows with the finest tier's.
// What a host may fill a block with is bounded, so that one is always made and read within little memory. Threads: one
// at a time; whoever writes holds a transaction.
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
  // Of one host's block, by MemoryOf: twice what 256 flows that never pause take.
  static constexpr uint64_t kMostBlockBytes = 32 << 20;
  static constexpr int64_t kMostRows = 2048;  // that wait for it; an agent has some 700

  explicit WorkTables(Database& db) : db_(db) {}

  absl::Status Add(int64_t host, const WorkSample& sample);
  // Times in (from, to]; DataLoss: a block is damaged. With what is in no block yet.
  absl::StatusOr<std::vector<WorkSample>> Read(size_t tier, int64_t host, int64_t from_ns, int64_t to_ns);
  // Makes blocks that are complete, at most so many; how many were made.
  absl::StatusOr<int> MakeBlocks(int64_t now_ns, int most);
  const WorkLosses& losses() const { return losses_; }
  void SetLosses(const WorkLosses& losses) { losses_ = losses; }  // as before what was rolled back

 private:
  absl::StatusOr<bool> HasRoom(int64_t host, int64_t start_s, size_t bytes);
  static uint64_t Bound(std::vector<WorkSample>& samples);  // how many were left out
  // `damaged`: counts what cannot be read, which is DataLoss where it is null.
  absl::StatusOr<std::vector<WorkSample>> Blocks(size_t tier, int64_t host, int64_t from_s, int64_t to_s,
                                                 uint64_t* damaged);
  absl::StatusOr<std::vector<WorkSample>> Fresh(int64_t host, int64_t from_s, int64_t to_s, uint64_t* damaged);
  absl::Status MakeBlock(int64_t host, int64_t start_s);
  absl::Status Put(size_t tier, int64_t host, int64_t start_s, const std::vector<WorkSample>& samples);

  Database& db_;
  WorkLosses losses_;
};

}  // namespace cw::fleet
