// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the SQLite store share: hosts as numbers, ranges of sequences, blocks of samples. Threads: one at a
// time; whoever writes holds a transaction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/store/sample_blob.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

// A block of tier n holds samples with times in (start, start + span].
inline constexpr std::array<int64_t, kTiers> kSpanS = {60, 600, 3600};
int64_t BlockStartS(int64_t time_ns, size_t tier);

// How a block takes the place of the one that was there: bound are the bytes and tier, host, start; then those and the
// blob. Literals, as Database::Use wants them.
struct BlockSql {
  const char* count;  // adds to its tier's bytes what it is larger
  const char* put;
};
absl::Status PutBlob(Database& db, const BlockSql& sql, size_t tier, int64_t host, int64_t start_s,
                     const std::string& blob);

class Tables {
 public:
  explicit Tables(Database& db) : db_(db) {}

  absl::StatusOr<std::optional<int64_t>> FindHost(const std::string& name);
  absl::StatusOr<int64_t> HostId(const std::string& name);  // a new one where there is none
  absl::StatusOr<std::vector<HostSeen>> Hosts();            // by name
  absl::Status PutHost(const HostFacts& facts);

  // False: all of [first, last] had been there. now_s: when it arrived. Runs that were heard of long ago, or too many
  // of a host, are forgotten with a new one.
  absl::StatusOr<bool> AddSeen(int64_t host, uint64_t run, uint64_t first, uint64_t last, int64_t now_s);
  absl::StatusOr<uint64_t> Through(int64_t host, uint64_t run);

  absl::Status AddFresh(int64_t host, const std::vector<NumberedSample>& samples);
  absl::StatusOr<std::vector<std::string>> TellersAt(int64_t time_ns);
  absl::StatusOr<int64_t> HorizonNs(size_t tier);  // older samples of the tier were deleted
  // Times in (from, to], sorted, with what is not in its block yet.
  absl::StatusOr<std::vector<NumberedSample>> Read(size_t tier, int64_t host, int64_t from_ns, int64_t to_ns);
  // Makes blocks that are due and complete, at most so many; how many were made.
  absl::StatusOr<int> MakeBlocks(int64_t now_ns, int most);
  // Deletes the oldest blocks of a tier before the time, of paths and of work; the bytes that went.
  absl::StatusOr<uint64_t> DeleteBlocks(size_t tier, int64_t before_ns);

 private:
  absl::StatusOr<std::vector<NumberedSample>> ReadBlocks(size_t tier, int64_t host, int64_t from_s, int64_t to_s);
  absl::Status PutBlock(size_t tier, int64_t host, int64_t start_s, const std::vector<NumberedSample>& samples);
  absl::Status ForgetSeen(int64_t host, int64_t now_s);
  absl::StatusOr<uint64_t> DeleteWork(size_t tier, int64_t before_s);
  absl::Status MakeBlock(size_t tier, int64_t host, int64_t start_s);

  Database& db_;
};

}  // namespace cw::fleet
