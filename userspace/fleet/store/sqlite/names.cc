// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/names.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/store/sqlite/tables.h"

namespace cw::fleet {
namespace {

constexpr int64_t kNsOfS = 1'000'000'000;
constexpr int64_t kDayS = 86400;
constexpr int kAtOnceOfHost = 500;  // where a host needs room for one: the next ones have it, too

absl::string_view AddrBytes(const Addr& addr) {
  return {reinterpret_cast<const char*>(addr.bytes.data()), addr.bytes.size()};
}

Addr AddrOfBytes(const std::string& bytes) {
  Addr addr;
  std::copy_n(bytes.begin(), std::min(bytes.size(), addr.bytes.size()), addr.bytes.begin());
  return addr;
}

std::string BytesOfHops(const std::vector<Addr>& hops) {
  std::string bytes;
  for (const Addr& hop : hops) absl::StrAppend(&bytes, AddrBytes(hop));
  return bytes;
}

std::vector<Addr> HopsOfBytes(const std::string& bytes) {
  std::vector<Addr> hops(bytes.size() / sizeof(Addr::bytes));
  for (size_t i = 0; i < hops.size(); ++i) {
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * sizeof(Addr::bytes)), sizeof(Addr::bytes),
                hops[i].bytes.begin());
  }
  return hops;
}

// The end of the day that the time is in. Days of different names begin at different times, so that not all of a fleet
// are written at midnight.
int64_t UsedUntilS(int64_t time_ns, uint64_t name) {
  const auto begin = static_cast<int64_t>((name * 0x9e3779b97f4a7c15) % kDayS);
  return ((time_ns / kNsOfS + begin) / kDayS + 1) * kDayS - begin;
}

}  // namespace

absl::StatusOr<std::optional<uint64_t>> NameTables::PathId(int64_t host, const PathKey& key, int64_t time_ns) {
  if (paths_.Find(host, key) == nullptr) {
    absl::StatusOr<std::optional<Path>> path = FindPath(host, key);
    if (path.ok() && !path->has_value()) path = NewPath(host, key, time_ns);
    if (!path.ok()) return path.status();
    if (!path->has_value()) return std::nullopt;
    paths_.Put(host, key, **path);
  }
  Path& path = *paths_.Find(host, key);
  if (time_ns / kNsOfS >= path.used_s) {
    const int64_t used_s = UsedUntilS(time_ns, path.id);
    const absl::Status status = db_.Use("UPDATE path SET used_s = ? WHERE id = ?").Int(used_s).Uint(path.id).Run();
    if (!status.ok()) return status;
    path.used_s = used_s;
  }
  return path.id;
}

absl::StatusOr<std::optional<NameTables::Path>> NameTables::FindPath(int64_t host, const PathKey& key) {
  Statement& find = db_.Use(
                           "SELECT id, used_s FROM path WHERE host = ? AND local = ? AND remote = ? AND port = ? AND "
                           "reverse = ?")
                        .Int(host)
                        .Blob(AddrBytes(key.local))
                        .Blob(AddrBytes(key.remote))
                        .Int(key.udp_port)
                        .Int(key.reverse ? 1 : 0);
  const absl::StatusOr<bool> row = find.Step();
  if (!row.ok()) return row.status();
  std::optional<Path> path;
  if (*row) path = {find.ColumnUint(0), find.ColumnInt(1)};
  find.Reset();
  return path;
}

absl::StatusOr<std::optional<NameTables::Path>> NameTables::NewPath(int64_t host, const PathKey& key, int64_t time_ns) {
  const absl::StatusOr<bool> room = RoomForPath(host);
  if (!room.ok()) return room.status();
  if (!*room) return std::nullopt;
  const int64_t used_s = UsedUntilS(time_ns, PathHash()(key));
  const absl::Status status =
      db_.Use("INSERT INTO path(host, local, remote, port, reverse, used_s) VALUES (?, ?, ?, ?, ?, ?)")
          .Int(host)
          .Blob(AddrBytes(key.local))
          .Blob(AddrBytes(key.remote))
          .Int(key.udp_port)
          .Int(key.reverse ? 1 : 0)
          .Int(used_s)
          .Run();
  if (!status.ok()) return status;
  return Path{static_cast<uint64_t>(sqlite3_last_insert_rowid(db_.raw())), used_s};
}

absl::StatusOr<absl::flat_hash_map<uint64_t, PathKey>> NameTables::Paths(int64_t host) {
  absl::flat_hash_map<uint64_t, PathKey> paths;
  Statement& s = db_.Use("SELECT id, local, remote, port, reverse FROM path WHERE host = ?").Int(host);
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) {
    paths[s.ColumnUint(0)] = {AddrOfBytes(s.ColumnBytes(1)), AddrOfBytes(s.ColumnBytes(2)),
                              static_cast<uint16_t>(s.ColumnInt(3)), s.ColumnInt(4) != 0};
  }
  if (!row.ok()) return row.status();
  return paths;
}

absl::StatusOr<int64_t> NameTables::HopsUsedS(int64_t host, uint64_t id) {
  if (const int64_t* known = hops_.Find(host, id)) return *known;
  Statement& find = db_.Use("SELECT used_s FROM hops WHERE host = ? AND id = ?").Int(host).Uint(id);
  const absl::StatusOr<bool> row = find.Step();
  if (!row.ok()) return row.status();
  const int64_t used_s = *row ? find.ColumnInt(0) : kAbsent;
  find.Reset();
  hops_.Put(host, id, used_s);
  return used_s;
}

absl::StatusOr<bool> NameTables::AddHops(int64_t host, const HopList& list, int64_t now_ns) {
  const absl::StatusOr<int64_t> used_s = HopsUsedS(host, list.id);
  if (!used_s.ok()) return used_s.status();
  const absl::StatusOr<int64_t> unused_s = UnusedS();
  if (!unused_s.ok()) return unused_s.status();
  if (*used_s > *unused_s) return true;
  if (*used_s == kAbsent) {
    const absl::StatusOr<bool> room = RoomForHops(host, now_ns);
    if (!room.ok() || !*room) return room;
  }
  // One that would go now is as if it were new: it was told for samples that come.
  if (absl::Status status = PutHops(host, list, now_ns); !status.ok()) return status;
  hops_.Put(host, list.id, 0);
  return true;
}

absl::Status NameTables::PutHops(int64_t host, const HopList& list, int64_t now_ns) {
  const std::string bytes = BytesOfHops(list.hops);
  return db_
      .Use(
          "INSERT INTO hops(host, id, list, used_s, told_s) VALUES (?, ?, ?, 0, ?) ON CONFLICT DO UPDATE SET used_s = "
          "0, told_s = excluded.told_s")
      .Int(host)
      .Uint(list.id)
      .Blob(bytes)
      .Int(now_ns / kNsOfS)
      .Run();
}

absl::Status NameTables::UseHops(int64_t host, uint64_t id, int64_t time_ns) {
  if (id == 0) return absl::OkStatus();
  const absl::StatusOr<int64_t> known_s = HopsUsedS(host, id);
  if (!known_s.ok()) return known_s.status();
  if (*known_s == kAbsent || time_ns / kNsOfS < *known_s) return absl::OkStatus();
  const int64_t used_s = UsedUntilS(time_ns, id);
  const absl::Status status =
      db_.Use("UPDATE hops SET used_s = ? WHERE host = ? AND id = ?").Int(used_s).Int(host).Uint(id).Run();
  if (status.ok()) hops_.Put(host, id, used_s);
  return status;
}

absl::StatusOr<std::optional<HopList>> NameTables::Hops(int64_t host, uint64_t id) {
  Statement& s = db_.Use("SELECT list FROM hops WHERE host = ? AND id = ?").Int(host).Uint(id);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  std::optional<HopList> list;
  if (*row) list = {id, HopsOfBytes(s.ColumnBytes(0))};
  s.Reset();
  return list;
}

absl::StatusOr<std::vector<HopList>> NameTables::AllHops(int64_t host) {
  std::vector<HopList> lists;
  Statement& s = db_.Use("SELECT id, list FROM hops WHERE host = ? ORDER BY used_s DESC, told_s DESC LIMIT ?");
  s.Int(host).Int(bounds_.hop_lists);
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) lists.push_back({s.ColumnUint(0), HopsOfBytes(s.ColumnBytes(1))});
  if (!row.ok()) return row.status();
  return lists;
}

// Where a block ends behind its tier's horizon its samples begin a span before it.
absl::StatusOr<int64_t> NameTables::UnusedS() {
  const absl::StatusOr<int64_t> horizon_ns = db_.Number("SELECT min(horizon_ns) FROM tier WHERE tier < 3");
  if (!horizon_ns.ok()) return horizon_ns.status();
  return std::max<int64_t>(0, *horizon_ns / kNsOfS - kSpanS[kTiers - 1]);
}

absl::StatusOr<bool> NameTables::RoomForPath(int64_t host) {
  Statement& s = db_.Use("SELECT paths FROM host WHERE id = ?").Int(host);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const bool room = *row && s.ColumnInt(0) < bounds_.paths;
  s.Reset();
  if (room) return true;
  const absl::StatusOr<int64_t> unused_s = UnusedS();
  if (!unused_s.ok()) return unused_s.status();
  const absl::StatusOr<size_t> gone =
      DropPaths(db_.Use("SELECT host, id FROM path WHERE host = ? AND used_s <= ? ORDER BY used_s LIMIT ?")
                    .Int(host)
                    .Int(*unused_s)
                    .Int(kAtOnceOfHost));
  if (!gone.ok()) return gone.status();
  return *gone > 0;
}

absl::StatusOr<bool> NameTables::RoomForHops(int64_t host, int64_t now_ns) {
  Statement& s = db_.Use("SELECT hop_lists FROM host WHERE id = ?").Int(host);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const bool room = *row && s.ColumnInt(0) < bounds_.hop_lists;
  s.Reset();
  if (room) return true;
  const absl::StatusOr<int64_t> unused_s = UnusedS();
  if (!unused_s.ok()) return unused_s.status();
  absl::StatusOr<size_t> gone = DropHops(
      db_.Use("SELECT host, id FROM hops WHERE host = ? AND used_s = 0 AND told_s <= ? ORDER BY told_s LIMIT ?")
          .Int(host)
          .Int(now_ns / kNsOfS - kUntoldGraceS)
          .Int(kAtOnceOfHost));
  if (gone.ok() && *gone == 0) {
    gone = DropHops(
        db_.Use("SELECT host, id FROM hops WHERE host = ? AND used_s > 0 AND used_s <= ? ORDER BY used_s LIMIT ?")
            .Int(host)
            .Int(*unused_s)
            .Int(kAtOnceOfHost));
  }
  if (!gone.ok()) return gone.status();
  return *gone > 0;
}

absl::StatusOr<size_t> NameTables::DropPaths(Statement& which) {
  std::vector<Row> rows;
  absl::StatusOr<bool> row = which.Step();
  for (; row.ok() && *row; row = which.Step()) rows.push_back({which.ColumnInt(0), which.ColumnUint(1)});
  if (!row.ok()) return row.status();
  for (const Row& r : rows) {
    if (absl::Status status = db_.Use("DELETE FROM path WHERE id = ?").Uint(r.id).Run(); !status.ok()) return status;
    paths_.Forget(r.host);
  }
  return rows.size();
}

absl::StatusOr<size_t> NameTables::DropHops(Statement& which) {
  std::vector<Row> rows;
  absl::StatusOr<bool> row = which.Step();
  for (; row.ok() && *row; row = which.Step()) rows.push_back({which.ColumnInt(0), which.ColumnUint(1)});
  if (!row.ok()) return row.status();
  for (const Row& r : rows) {
    const absl::Status status = db_.Use("DELETE FROM hops WHERE host = ? AND id = ?").Int(r.host).Uint(r.id).Run();
    if (!status.ok()) return status;
    hops_.Forget(r.host);
  }
  return rows.size();
}

// Host by host, since that is how the index has them.
absl::Status NameTables::DropUnused(int64_t now_ns) {
  const absl::StatusOr<int64_t> unused_s = UnusedS();
  if (!unused_s.ok()) return unused_s.status();
  absl::Status status = DropPaths(db_.Use("SELECT n.host, n.id FROM host h CROSS JOIN path n INDEXED BY path_by_use ON "
                                          "n.host = h.id AND n.used_s <= ? LIMIT ?")
                                      .Int(*unused_s)
                                      .Int(kUnusedAtOnce))
                            .status();
  if (!status.ok()) return status;
  status = DropHops(db_.Use("SELECT n.host, n.id FROM host h CROSS JOIN hops n INDEXED BY hops_by_use ON n.host = h.id "
                            "AND n.used_s > 0 AND n.used_s <= ? LIMIT ?")
                        .Int(*unused_s)
                        .Int(kUnusedAtOnce))
               .status();
  if (!status.ok()) return status;
  return DropHops(db_.Use("SELECT n.host, n.id FROM host h CROSS JOIN hops n INDEXED BY hops_by_use ON n.host = h.id "
                          "AND n.used_s = 0 AND n.told_s <= ? LIMIT ?")
                      .Int(now_ns / kNsOfS - kUntoldGraceS)
                      .Int(kUnusedAtOnce))
      .status();
}

void NameTables::Forget() {
  paths_.Clear();
  hops_.Clear();
}

}  // namespace cw::fleet
