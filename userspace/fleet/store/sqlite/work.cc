// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/work.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "userspace/fleet/store/sqlite/tables.h"
#include "userspace/fleet/store/work_blob.h"

namespace cw::fleet {
namespace {

constexpr int64_t kNsOfSecond = 1'000'000'000;
constexpr int64_t kWorkLateS = 60;  // a block is made so long after its end; what comes later makes it anew

// Fleet time is after 1970.
int64_t WorkStartS(int64_t time_ns) {
  return std::max<int64_t>(0, time_ns - 1) / (WorkTables::kSpanS * kNsOfSecond) * WorkTables::kSpanS;
}

absl::Status TakeWorkBlobs(Statement& s, std::vector<WorkSample>& out, uint64_t* damaged) {
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) {
    absl::StatusOr<std::vector<WorkSample>> block = UnpackWork(s.ColumnBytes(0));
    if (!block.ok() && damaged != nullptr) {
      ++*damaged;
      continue;
    }
    if (!block.ok()) {
      s.Reset();
      return block.status();
    }
    std::move(block->begin(), block->end(), std::back_inserter(out));
  }
  s.Reset();
  return row.status();
}

}  // namespace

absl::Status WorkTables::Add(int64_t host, const WorkSample& sample) {
  if (sample.empty()) return absl::OkStatus();
  const int64_t start_s = WorkStartS(sample.time_ns);
  const size_t bytes = MemoryOf(sample);
  const absl::StatusOr<bool> room = HasRoom(host, start_s, bytes);
  if (!room.ok()) return room.status();
  if (!*room) {
    ++losses_.left_out;
    return absl::OkStatus();
  }
  const std::string blob = PackWork({sample});
  absl::Status status = db_.Use("INSERT INTO work_fresh(host, start_s, blob, bytes) VALUES (?, ?, ?, ?)")
                            .Int(host)
                            .Int(start_s)
                            .Blob(blob)
                            .Uint(bytes)
                            .Run();
  if (!status.ok()) return status;
  return db_.Use("UPDATE tier SET bytes = bytes + ? WHERE tier = 0").Uint(blob.size()).Run();
}

absl::StatusOr<bool> WorkTables::HasRoom(int64_t host, int64_t start_s, size_t bytes) {
  Statement& s = db_.Use("SELECT coalesce(sum(bytes), 0), count(*) FROM work_fresh WHERE host = ? AND start_s = ?")
                     .Int(host)
                     .Int(start_s);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const bool room = s.ColumnUint(0) + bytes <= kMostBlockBytes && s.ColumnInt(1) < kMostRows;
  s.Reset();
  return room;
}

// The oldest stay: a block that is full keeps what it has.
uint64_t WorkTables::Bound(std::vector<WorkSample>& samples) {
  uint64_t bytes = 0;
  const auto beyond = [&bytes](const WorkSample& s) { return (bytes += MemoryOf(s)) > kMostBlockBytes; };
  const auto end = std::find_if(samples.begin(), samples.end(), beyond);
  const auto left_out = static_cast<uint64_t>(samples.end() - end);
  samples.erase(end, samples.end());
  return left_out;
}

absl::StatusOr<std::vector<WorkSample>> WorkTables::Blocks(size_t tier, int64_t host, int64_t from_s, int64_t to_s,
                                                           uint64_t* damaged) {
  std::vector<WorkSample> all;
  Statement& s = db_.Use("SELECT blob FROM work WHERE tier = ? AND host = ? AND start_s >= ? AND start_s <= ?")
                     .Int(static_cast<int64_t>(tier))
                     .Int(host)
                     .Int(from_s)
                     .Int(to_s);
  if (absl::Status status = TakeWorkBlobs(s, all, damaged); !status.ok()) return status;
  return all;
}

absl::StatusOr<std::vector<WorkSample>> WorkTables::Fresh(int64_t host, int64_t from_s, int64_t to_s,
                                                          uint64_t* damaged) {
  std::vector<WorkSample> all;
  Statement& s = db_.Use("SELECT blob FROM work_fresh WHERE host = ? AND start_s >= ? AND start_s <= ? ORDER BY id")
                     .Int(host)
                     .Int(from_s)
                     .Int(to_s);
  if (absl::Status status = TakeWorkBlobs(s, all, damaged); !status.ok()) return status;
  SortWork(all);
  return all;
}

absl::StatusOr<std::vector<WorkSample>> WorkTables::Read(size_t tier, int64_t host, int64_t from_ns, int64_t to_ns) {
  const int64_t from_s = WorkStartS(from_ns + 1), to_s = WorkStartS(to_ns);
  absl::StatusOr<std::vector<WorkSample>> all = Blocks(tier, host, from_s, to_s, nullptr);
  if (!all.ok()) return all.status();
  absl::StatusOr<std::vector<WorkSample>> fresh = Fresh(host, from_s, to_s, nullptr);
  if (!fresh.ok()) return fresh.status();
  all->insert(all->end(), std::make_move_iterator(fresh->begin()), std::make_move_iterator(fresh->end()));
  SortWork(*all);
  if (tier > 0) *all = CoarsenWork(*all, kResolution[tier]);  // what is fresh joins its interval
  std::erase_if(*all, [&](const WorkSample& s) { return s.time_ns <= from_ns || s.time_ns > to_ns; });
  return all;
}

absl::Status WorkTables::Put(size_t tier, int64_t host, int64_t start_s, const std::vector<WorkSample>& samples) {
  static constexpr BlockSql kSql = {
      "UPDATE tier SET bytes = bytes + ?1 - (SELECT coalesce(sum(length(blob)), 0) FROM work WHERE tier = ?2 AND host "
      "= "
      "?3 AND start_s = ?4) WHERE tier = ?2",
      "INSERT OR REPLACE INTO work(tier, host, start_s, blob) VALUES (?, ?, ?, ?)"};
  return PutBlob(db_, kSql, tier, host, start_s, PackWork(samples));
}

// What came late joins what is there: each tier keeps what finer ones have lost. A block that is damaged holds up
// nothing: what is new takes its place.
absl::Status WorkTables::MakeBlock(int64_t host, int64_t start_s) {
  const absl::StatusOr<std::vector<WorkSample>> fresh = Fresh(host, start_s, start_s, &losses_.damaged);
  if (!fresh.ok()) return fresh.status();
  for (size_t tier = 0; tier < kTiers; ++tier) {
    absl::StatusOr<std::vector<WorkSample>> all = Blocks(tier, host, start_s, start_s, &losses_.damaged);
    if (!all.ok()) return all.status();
    all->insert(all->end(), fresh->begin(), fresh->end());
    SortWork(*all);
    const uint64_t left_out = Bound(*all);
    if (tier == 0) losses_.left_out += left_out;  // the coarser ones leave out the same
    if (tier > 0) *all = CoarsenWork(*all, kResolution[tier]);
    if (absl::Status status = Put(tier, host, start_s, *all); !status.ok()) return status;
  }
  absl::Status status = db_.Use(
                               "UPDATE tier SET bytes = max(0, bytes - (SELECT coalesce(sum(length(blob)), 0) FROM "
                               "work_fresh WHERE host = ? AND start_s = ?)) WHERE tier = 0")
                            .Int(host)
                            .Int(start_s)
                            .Run();
  if (!status.ok()) return status;
  return db_.Use("DELETE FROM work_fresh WHERE host = ? AND start_s = ?").Int(host).Int(start_s).Run();
}

absl::StatusOr<int> WorkTables::MakeBlocks(int64_t now_ns, int most) {
  std::vector<std::pair<int64_t, int64_t>> due;
  Statement& s = db_.Use("SELECT DISTINCT host, start_s FROM work_fresh WHERE start_s <= ? LIMIT ?")
                     .Int(now_ns / kNsOfSecond - kSpanS - kWorkLateS)
                     .Int(most);
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) due.emplace_back(s.ColumnInt(0), s.ColumnInt(1));
  if (!row.ok()) return row.status();
  for (const auto& [host, start_s] : due) {
    if (absl::Status status = MakeBlock(host, start_s); !status.ok()) return status;
  }
  return static_cast<int>(due.size());
}

}  // namespace cw::fleet
