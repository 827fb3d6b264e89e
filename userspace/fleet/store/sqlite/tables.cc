// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/tables.h"

#include <algorithm>

#include "userspace/fleet/store/sqlite/work.h"

namespace cw::fleet {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kSeenS = 48 * 3600;  // a spool keeps what is a day old
constexpr int64_t kMostSeen = 1024;    // ranges of a host
constexpr int64_t kLateS = 60;         // a block is made so long after its end; what comes later makes it anew

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && a % b < 0 ? 1 : 0); }

}  // namespace

int64_t BlockStartS(int64_t time_ns, size_t tier) {
  return FloorDiv(time_ns - 1, kSpanS[tier] * kSecondNs) * kSpanS[tier];
}

absl::StatusOr<std::optional<int64_t>> Tables::FindHost(const std::string& name) {
  Statement& find = db_.Use("SELECT id FROM host WHERE name = ?").Text(name);
  const absl::StatusOr<bool> row = find.Step();
  if (!row.ok()) return row.status();
  std::optional<int64_t> id;
  if (*row) id = find.ColumnInt(0);
  find.Reset();
  return id;
}

absl::StatusOr<int64_t> Tables::HostId(const std::string& name) {
  absl::StatusOr<std::optional<int64_t>> id = FindHost(name);
  if (!id.ok()) return id.status();
  if (id->has_value()) return **id;
  const absl::Status status = db_.Use("INSERT INTO host(name) VALUES (?)").Text(name).Run();
  if (!status.ok()) return status;
  return sqlite3_last_insert_rowid(db_.raw());
}

absl::StatusOr<std::vector<HostSeen>> Tables::Hosts() {
  std::vector<HostSeen> hosts;
  Statement& s = db_.Use("SELECT name, newest_ns, metrics, removed_ns FROM host ORDER BY name");
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) {
    const std::string name = s.ColumnBytes(0);
    hosts.push_back({name, s.ColumnInt(1), {name, s.ColumnBytes(2), s.ColumnInt(3)}});
  }
  if (!row.ok()) return row.status();
  return hosts;
}

absl::Status Tables::PutHost(const HostFacts& facts) {
  const absl::StatusOr<int64_t> id = HostId(facts.host);
  if (!id.ok()) return id.status();
  Statement& s = db_.Use("UPDATE host SET metrics = ?, removed_ns = ? WHERE id = ?");
  return s.Text(facts.metrics).Int(facts.removed_ns).Int(*id).Run();
}

// Ranges never touch: one that would join its neighbours takes them in.
absl::StatusOr<bool> Tables::AddSeen(int64_t host, uint64_t run, uint64_t first, uint64_t last, int64_t now_s) {
  Statement& find =
      db_.Use("SELECT first, last FROM seen WHERE host = ? AND run = ? AND first <= ? AND last >= ? ORDER BY first");
  find.Int(host).Uint(run).Uint(last + 1).Int(static_cast<int64_t>(first) - 1);
  uint64_t from = first, to = last;
  absl::StatusOr<bool> row = find.Step();
  for (; row.ok() && *row; row = find.Step()) {
    const uint64_t there_from = find.ColumnUint(0), there_to = find.ColumnUint(1);
    if (there_from <= first && there_to >= last) {
      find.Reset();
      return false;
    }
    from = std::min(from, there_from);
    to = std::max(to, there_to);
  }
  if (!row.ok()) return row.status();
  absl::Status status = from == first && to == last ? ForgetSeen(host, now_s) : absl::OkStatus();
  if (!status.ok()) return status;
  status = db_.Use("DELETE FROM seen WHERE host = ? AND run = ? AND first >= ? AND first <= ?")
               .Int(host)
               .Uint(run)
               .Uint(from)
               .Uint(to)
               .Run();
  if (!status.ok()) return status;
  status = db_.Use("INSERT INTO seen VALUES (?, ?, ?, ?, ?)").Int(host).Uint(run).Uint(from).Uint(to).Int(now_s).Run();
  if (!status.ok()) return status;
  return true;
}

// What is older is in no spool any more (SpoolLimits::age).
absl::Status Tables::ForgetSeen(int64_t host, int64_t now_s) {
  absl::Status status = db_.Use("DELETE FROM seen WHERE host = ? AND used_s < ?").Int(host).Int(now_s - kSeenS).Run();
  if (!status.ok()) return status;
  return db_
      .Use(
          "DELETE FROM seen WHERE host = ?1 AND (SELECT count(*) FROM seen WHERE host = ?1) >= ?2 AND run IN "
          "(SELECT run FROM seen WHERE host = ?1 ORDER BY used_s LIMIT ?2 / 4)")
      .Int(host)
      .Int(kMostSeen)
      .Run();
}

absl::StatusOr<uint64_t> Tables::Through(int64_t host, uint64_t run) {
  Statement& find = db_.Use("SELECT last FROM seen WHERE host = ? AND run = ? AND first <= 1").Int(host).Uint(run);
  const absl::StatusOr<bool> row = find.Step();
  if (!row.ok()) return row.status();
  const uint64_t last = *row ? find.ColumnUint(0) : 0;
  find.Reset();
  return last;
}

// Of the finest tier that reaches back so far; what is not in a block yet is due to become one.
absl::StatusOr<std::vector<std::string>> Tables::TellersAt(int64_t time_ns) {
  size_t tier = 0;
  for (; tier + 1 < kTiers; ++tier) {
    const absl::StatusOr<int64_t> horizon = HorizonNs(tier);
    if (!horizon.ok()) return horizon.status();
    if (time_ns >= *horizon) break;
  }
  const int64_t to_s = BlockStartS(time_ns, tier), from_s = to_s - kSpanS[tier];
  Statement& s =
      db_.Use(
             "SELECT name FROM host WHERE EXISTS (SELECT 1 FROM chunk WHERE tier = ?1 AND host = host.id AND "
             "start_s IN (?2, ?3)) OR EXISTS (SELECT 1 FROM due WHERE tier = ?1 AND start_s IN (?2, ?3) AND "
             "host = host.id) ORDER BY name")
          .Int(static_cast<int64_t>(tier))
          .Int(from_s)
          .Int(to_s);
  std::vector<std::string> names;
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) names.push_back(s.ColumnBytes(0));
  if (!row.ok()) return row.status();
  return names;
}

absl::StatusOr<int64_t> Tables::HorizonNs(size_t tier) {
  Statement& find = db_.Use("SELECT horizon_ns FROM tier WHERE tier = ?").Int(static_cast<int64_t>(tier));
  const absl::StatusOr<bool> row = find.Step();
  if (!row.ok()) return row.status();
  const int64_t horizon = *row ? find.ColumnInt(0) : 0;
  find.Reset();
  return horizon;
}

absl::Status Tables::AddFresh(int64_t host, const std::vector<NumberedSample>& samples) {
  std::vector<NumberedSample> sorted = samples;
  std::stable_sort(sorted.begin(), sorted.end(), [](const NumberedSample& a, const NumberedSample& b) {
    return BlockStartS(a.sample.time_ns, 0) < BlockStartS(b.sample.time_ns, 0);
  });
  for (size_t i = 0; i < sorted.size();) {
    const int64_t time_ns = sorted[i].sample.time_ns, start_s = BlockStartS(time_ns, 0);
    size_t end = i;
    while (end < sorted.size() && BlockStartS(sorted[end].sample.time_ns, 0) == start_s) ++end;
    std::vector<NumberedSample> minute(sorted.begin() + static_cast<std::ptrdiff_t>(i),
                                       sorted.begin() + static_cast<std::ptrdiff_t>(end));
    SortSamples(minute);
    const std::string blob = PackSamples(minute);
    absl::Status status =
        db_.Use("INSERT INTO fresh(host, start_s, blob) VALUES (?, ?, ?)").Int(host).Int(start_s).Blob(blob).Run();
    for (size_t tier = 0; status.ok() && tier < kTiers; ++tier) {
      status = db_.Use("INSERT OR IGNORE INTO due VALUES (?, ?, ?)")
                   .Int(static_cast<int64_t>(tier))
                   .Int(BlockStartS(time_ns, tier))
                   .Int(host)
                   .Run();
    }
    if (!status.ok()) return status;
    i = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NumberedSample>> Tables::ReadBlocks(size_t tier, int64_t host, int64_t from_s,
                                                               int64_t to_s) {
  std::vector<NumberedSample> all;
  const auto take = [&all](Statement& s) -> absl::Status {
    absl::StatusOr<bool> row = s.Step();
    for (; row.ok() && *row; row = s.Step()) {
      absl::StatusOr<std::vector<NumberedSample>> block = UnpackSamples(s.ColumnBytes(0));
      if (!block.ok()) {
        s.Reset();
        return block.status();
      }
      std::move(block->begin(), block->end(), std::back_inserter(all));
    }
    s.Reset();
    return row.status();
  };
  absl::Status status =
      take(db_.Use("SELECT blob FROM chunk WHERE tier = ? AND host = ? AND start_s >= ? AND start_s < ?")
               .Int(static_cast<int64_t>(tier))
               .Int(host)
               .Int(from_s)
               .Int(to_s));
  if (status.ok() && tier == 0) {
    status = take(db_.Use("SELECT blob FROM fresh WHERE host = ? AND start_s >= ? AND start_s < ? ORDER BY id")
                      .Int(host)
                      .Int(from_s)
                      .Int(to_s));
  }
  if (!status.ok()) return status;
  return all;
}

absl::StatusOr<std::vector<NumberedSample>> Tables::Read(size_t tier, int64_t host, int64_t from_ns, int64_t to_ns) {
  const int64_t from_s = BlockStartS(from_ns + 1, tier), to_s = BlockStartS(to_ns, tier) + kSpanS[tier];
  absl::StatusOr<std::vector<NumberedSample>> all = ReadBlocks(tier, host, from_s, to_s);
  if (!all.ok()) return all.status();
  if (tier > 0) {
    // What is due is made of the tier below for this answer; a sample made twice counts once.
    std::vector<int64_t> due;
    Statement& s = db_.Use("SELECT start_s FROM due WHERE tier = ? AND host = ? AND start_s >= ? AND start_s < ?")
                       .Int(static_cast<int64_t>(tier))
                       .Int(host)
                       .Int(from_s)
                       .Int(to_s);
    absl::StatusOr<bool> row = s.Step();
    for (; row.ok() && *row; row = s.Step()) due.push_back(s.ColumnInt(0));
    if (!row.ok()) return row.status();
    for (const int64_t start_s : due) {
      absl::StatusOr<std::vector<NumberedSample>> below =
          Read(tier - 1, host, start_s * kSecondNs, (start_s + kSpanS[tier]) * kSecondNs);
      if (!below.ok()) return below.status();
      const std::vector<NumberedSample> made = Coarsen(*below, kResolution[tier]);
      all->insert(all->end(), made.begin(), made.end());
    }
  }
  all->erase(
      std::remove_if(all->begin(), all->end(),
                     [&](const NumberedSample& s) { return s.sample.time_ns <= from_ns || s.sample.time_ns > to_ns; }),
      all->end());
  SortSamples(*all);
  return all;
}

absl::Status PutBlob(Database& db, const BlockSql& sql, size_t tier, int64_t host, int64_t start_s,
                     const std::string& blob) {
  const auto tier_number = static_cast<int64_t>(tier);
  const absl::Status status = db.Use(sql.count).Uint(blob.size()).Int(tier_number).Int(host).Int(start_s).Run();
  if (!status.ok()) return status;
  return db.Use(sql.put).Int(tier_number).Int(host).Int(start_s).Blob(blob).Run();
}

absl::Status Tables::PutBlock(size_t tier, int64_t host, int64_t start_s, const std::vector<NumberedSample>& samples) {
  static constexpr BlockSql kSql = {
      "UPDATE tier SET bytes = bytes + ?1 - (SELECT coalesce(sum(length(blob)), 0) FROM chunk WHERE tier = ?2 AND host "
      "= "
      "?3 AND start_s = ?4) WHERE tier = ?2",
      "INSERT OR REPLACE INTO chunk(tier, host, start_s, blob) VALUES (?, ?, ?, ?)"};
  return PutBlob(db_, kSql, tier, host, start_s, PackSamples(samples));
}

absl::Status Tables::MakeBlock(size_t tier, int64_t host, int64_t start_s) {
  const int64_t from_ns = start_s * kSecondNs, to_ns = (start_s + kSpanS[tier]) * kSecondNs;
  absl::StatusOr<std::vector<NumberedSample>> samples = Read(tier, host, from_ns, to_ns);
  if (!samples.ok()) return samples.status();
  absl::Status status;
  if (!samples->empty()) status = PutBlock(tier, host, start_s, *samples);
  if (status.ok() && tier == 0) {
    status = db_.Use("DELETE FROM fresh WHERE host = ? AND start_s = ?").Int(host).Int(start_s).Run();
  }
  if (!status.ok()) return status;
  return db_.Use("DELETE FROM due WHERE tier = ? AND start_s = ? AND host = ?")
      .Int(static_cast<int64_t>(tier))
      .Int(start_s)
      .Int(host)
      .Run();
}

absl::StatusOr<int> Tables::MakeBlocks(int64_t now_ns, int most) {
  struct Due {
    int64_t host, start_s;
  };
  int made = 0;
  // The lower tier first: the upper ones are made of it.
  for (size_t tier = 0; tier < kTiers && made < most; ++tier) {
    std::vector<Due> due;
    Statement& s = db_.Use("SELECT host, start_s FROM due WHERE tier = ? AND start_s <= ? LIMIT ?")
                       .Int(static_cast<int64_t>(tier))
                       .Int(FloorDiv(now_ns, kSecondNs) - kSpanS[tier] - kLateS)
                       .Int(most - made);
    absl::StatusOr<bool> row = s.Step();
    for (; row.ok() && *row; row = s.Step()) due.push_back({s.ColumnInt(0), s.ColumnInt(1)});
    if (!row.ok()) return row.status();
    for (const Due& d : due) {
      if (absl::Status status = MakeBlock(tier, d.host, d.start_s); !status.ok()) return status;
      ++made;
    }
  }
  return made;
}

absl::StatusOr<uint64_t> Tables::DeleteWork(size_t tier, int64_t before_s) {
  const auto tier_number = static_cast<int64_t>(tier);
  Statement& size = db_.Use(
                           "SELECT (SELECT coalesce(sum(length(blob)), 0) FROM work WHERE tier = ?1 AND start_s <= ?2) "
                           "+ (SELECT coalesce(sum(length(blob)), 0) FROM work_fresh WHERE ?1 = 0 AND start_s <= ?2)")
                        .Int(tier_number)
                        .Int(before_s);
  const absl::StatusOr<bool> row = size.Step();
  if (!row.ok()) return row.status();
  const uint64_t bytes = size.ColumnUint(0);
  size.Reset();
  absl::Status status =
      db_.Use("DELETE FROM work WHERE tier = ? AND start_s <= ?").Int(tier_number).Int(before_s).Run();
  if (status.ok() && tier == 0) status = db_.Use("DELETE FROM work_fresh WHERE start_s <= ?").Int(before_s).Run();
  if (!status.ok()) return status;
  return bytes;
}

absl::StatusOr<uint64_t> Tables::DeleteBlocks(size_t tier, int64_t before_ns) {
  const auto tier_number = static_cast<int64_t>(tier);
  const int64_t before_s = FloorDiv(before_ns, kSecondNs) - kSpanS[tier];  // blocks that end by then
  const absl::StatusOr<uint64_t> work = DeleteWork(tier, FloorDiv(before_ns, kSecondNs) - WorkTables::kSpanS);
  if (!work.ok()) return work.status();
  Statement& size = db_.Use("SELECT coalesce(sum(length(blob)), 0) FROM chunk WHERE tier = ? AND start_s <= ?")
                        .Int(tier_number)
                        .Int(before_s);
  const absl::StatusOr<bool> row = size.Step();
  if (!row.ok()) return row.status();
  const uint64_t bytes = size.ColumnUint(0) + *work;
  size.Reset();
  absl::Status status =
      db_.Use("DELETE FROM chunk WHERE tier = ? AND start_s <= ?").Int(tier_number).Int(before_s).Run();
  if (status.ok() && tier == 0) status = db_.Use("DELETE FROM fresh WHERE start_s <= ?").Int(before_s).Run();
  if (status.ok()) {
    status = db_.Use("DELETE FROM due WHERE tier = ? AND start_s <= ?").Int(tier_number).Int(before_s).Run();
  }
  if (status.ok()) {
    status = db_.Use("UPDATE tier SET bytes = max(0, bytes - ?), horizon_ns = max(horizon_ns, ?) WHERE tier = ?")
                 .Uint(bytes)
                 .Int((before_s + kSpanS[tier]) * kSecondNs)
                 .Int(tier_number)
                 .Run();
  }
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace cw::fleet
