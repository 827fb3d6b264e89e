// SPDX-License-Identifier: Apache-2.0
//
// What goes when, by age, by size, and when the disk is full. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/tables.h"

namespace cw::fleet {

class RetentionRules {
 public:
  RetentionRules(Database& db, Tables& tables) : db_(db), tables_(tables) {}

  absl::StatusOr<std::vector<Deletion>> Plan(int64_t now_ns, const Retention& retention);
  absl::Status Delete(const std::vector<Deletion>& plan);
  // About a sixteenth of the finest tier that has any; the bytes that went, 0: there was none.
  absl::StatusOr<uint64_t> DropOldestSamples();
  // About a sixteenth of the events, whatever their times are; how many went.
  absl::StatusOr<uint64_t> DropOldestEvents();

 private:
  absl::StatusOr<Deletion> PlanTier(size_t tier, int64_t now_ns, const Keep& keep);
  absl::StatusOr<Deletion> PlanEvents(int64_t now_ns, const Keep& keep);
  absl::StatusOr<Deletion> PlanFindings(const Deletion& events);  // what ended when those went
  absl::Status DeleteOne(const Deletion& deletion);
  absl::StatusOr<int64_t> TierBytes(size_t tier);  // a running sum; of events too
  // The time by whose end so many bytes of the tier's oldest are covered; 0: there are none.
  absl::StatusOr<int64_t> OldestUntil(size_t tier, uint64_t bytes, bool fresh);
  absl::StatusOr<uint64_t> DropFresh(int64_t end_s);  // what ended by then, of what is in no block yet
  // A time that so many of the oldest events lie before, and all of the same time as the last of them.
  absl::StatusOr<int64_t> EventsUntil(uint64_t count);

  Database& db_;
  Tables& tables_;
};

}  // namespace cw::fleet
