// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/events.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace cw::fleet {
namespace {

constexpr size_t kMostEvents = 100'000;  // in one reply
constexpr uint64_t kDocumentsShare = 8;  // of a host's day, on top
constexpr uint64_t kRowBytes = 64;       // what a row takes besides
constexpr int64_t kDayNs = 86'400'000'000'000;

// A text for each index: one for all would have host and type looked for in each row of a time. The newest come in the
// index' own order. Of those that go on the index gives numbers, and only `limit` rows are read. ?4 and ?5 are bound
// where they are not asked for, too.
#define CW_EVENT_ROWS(by)                                                                                    \
  "SELECT e.id, h.name, e.run, e.seq, e.time_ns, e.bound_ns, e.type, e.severity, e.payload FROM event e " by \
  " CROSS JOIN host h ON h.id = e.host "
constexpr const char* kNewest = CW_EVENT_ROWS("INDEXED BY event_by_time")
    "WHERE e.id > ?1 AND e.time_ns >= ?2 AND e.time_ns < ?3 ORDER BY e.time_ns DESC, e.id DESC LIMIT ?6";
constexpr const char* kNewestOfHost = CW_EVENT_ROWS("INDEXED BY event_by_host")
    "WHERE e.host = ?4 AND e.id > ?1 AND e.time_ns >= ?2 AND e.time_ns < ?3 AND (?5 = '' OR e.type = ?5) "
    "ORDER BY e.time_ns DESC, e.id DESC LIMIT ?6";
constexpr const char* kNewestOfType = CW_EVENT_ROWS("INDEXED BY event_by_type")
    "WHERE e.type = ?5 AND e.id > ?1 AND e.time_ns >= ?2 AND e.time_ns < ?3 "
    "ORDER BY e.time_ns DESC, e.id DESC LIMIT ?6";
constexpr const char* kNext =
    CW_EVENT_ROWS("NOT INDEXED") "WHERE e.id > ?1 AND e.time_ns >= ?2 AND e.time_ns < ?3 ORDER BY e.id LIMIT ?6";
constexpr const char* kNextSince = CW_EVENT_ROWS("")
    "WHERE e.id IN (SELECT id FROM event INDEXED BY event_by_time WHERE time_ns >= ?2 AND time_ns < ?3 AND id > ?1 "
    "ORDER BY id LIMIT ?6) ORDER BY e.id";
constexpr const char* kNextOfHost = CW_EVENT_ROWS("")
    "WHERE e.id IN (SELECT id FROM event INDEXED BY event_by_host WHERE host = ?4 AND time_ns >= ?2 AND time_ns < ?3 "
    "AND id > ?1 AND (?5 = '' OR type = ?5) ORDER BY id LIMIT ?6) ORDER BY e.id";
constexpr const char* kNextOfType = CW_EVENT_ROWS("")
    "WHERE e.id IN (SELECT id FROM event INDEXED BY event_by_type WHERE type = ?5 AND time_ns >= ?2 AND time_ns < ?3 "
    "AND id > ?1 ORDER BY id LIMIT ?6) ORDER BY e.id";
#undef CW_EVENT_ROWS

}  // namespace

const char* EventSql(const EventQuery& query) {
  if (!query.host.empty()) return query.newest_first ? kNewestOfHost : kNextOfHost;
  if (!query.type.empty()) return query.newest_first ? kNewestOfType : kNextOfType;
  if (query.newest_first) return kNewest;
  return query.from_ns != INT64_MIN ? kNextSince : kNext;
}

absl::StatusOr<uint64_t> EventTables::Add(int64_t host, const HostBatch& batch, int64_t now_ns) {
  if (batch.events.empty() && batch.documents.empty()) return uint64_t{0};
  const int64_t day = now_ns / kDayNs;
  const absl::StatusOr<uint64_t> before = TakenOfShare(host, day);
  if (!before.ok()) return before.status();
  uint64_t taken = *before, left_out = 0;
  for (const Document& document : batch.documents) {
    const uint64_t bytes = document.bytes.size() + document.kind.size() + kRowBytes;
    // What a host says of itself it says once: events leave room for it.
    if (taken + bytes > day_bytes_ + day_bytes_ / kDocumentsShare) {
      ++left_out;
      continue;
    }
    if (absl::Status status = AddDocument(host, document); !status.ok()) return status;
    taken += bytes;
  }
  for (const StoredEvent& event : batch.events) {
    const uint64_t bytes = event.payload.size() + event.type.size() + kRowBytes;
    if (taken + bytes > day_bytes_) {
      const absl::StatusOr<bool> known = HasEvent(host, batch.run, event.seq);
      if (!known.ok()) return known.status();
      left_out += !*known;
      continue;
    }
    if (absl::Status status = AddEvent(host, batch.run, event); !status.ok()) return status;
    if (db_.Changes() > 0) taken += bytes;  // what was there takes nothing
  }
  if (taken == *before) return left_out;
  const absl::Status status =
      db_.Use("UPDATE host SET event_day = ?, event_bytes = ? WHERE id = ?").Int(day).Uint(taken).Int(host).Run();
  if (!status.ok()) return status;
  return left_out;
}

absl::StatusOr<uint64_t> EventTables::TakenOfShare(int64_t host, int64_t day) {
  Statement& s = db_.Use("SELECT event_bytes FROM host WHERE id = ? AND event_day = ?").Int(host).Int(day);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const uint64_t bytes = *row ? s.ColumnUint(0) : 0;
  s.Reset();
  return bytes;
}

absl::StatusOr<bool> EventTables::HasEvent(int64_t host, uint64_t run, uint64_t seq) {
  Statement& s = db_.Use("SELECT 1 FROM event WHERE host = ? AND run = ? AND seq = ?").Int(host).Uint(run).Uint(seq);
  const absl::StatusOr<bool> row = s.Step();
  if (row.ok()) s.Reset();
  return row;
}

absl::Status EventTables::AddEvent(int64_t host, uint64_t run, const StoredEvent& e) {
  return db_
      .Use(
          "INSERT OR IGNORE INTO event(host, run, seq, time_ns, bound_ns, type, severity, payload) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
      .Int(host)
      .Uint(run)
      .Uint(e.seq)
      .Int(e.time_ns)
      .Uint(e.bound_ns)
      .Text(e.type)
      .Int(e.severity)
      .Blob(e.payload)
      .Run();
}

absl::Status EventTables::AddDocument(int64_t host, const Document& d) {
  return db_.Use("INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?)")
      .Int(host)
      .Text(d.kind)
      .Int(d.time_ns)
      .Blob(d.bytes)
      .Run();
}

absl::StatusOr<EventPage> EventTables::Page(const EventQuery& query) {
  EventPage page{.next = query.after};
  int64_t host = -1;
  if (!query.host.empty()) {
    const absl::StatusOr<std::optional<int64_t>> id = tables_.FindHost(query.host);
    if (!id.ok()) return id.status();
    if (!id->has_value()) return page;
    host = **id;
  }
  Statement& s = db_.Use(EventSql(query));
  s.Uint(query.newest_first ? 0 : query.after).Int(query.from_ns).Int(query.to_ns).Int(host).Text(query.type);
  s.Uint(std::min(query.limit, kMostEvents));
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) {
    page.next = std::max(page.next, s.ColumnUint(0));
    page.events.push_back({.host = s.ColumnBytes(1),
                           .run = s.ColumnUint(2),
                           .seq = s.ColumnUint(3),
                           .time_ns = s.ColumnInt(4),
                           .bound_ns = s.ColumnUint(5),
                           .type = s.ColumnBytes(6),
                           .severity = static_cast<int>(s.ColumnInt(7)),
                           .payload = s.ColumnBytes(8)});
  }
  if (!row.ok()) return row.status();
  return page;
}

absl::StatusOr<std::vector<Document>> EventTables::DocumentsAt(int64_t host, int64_t time_ns) {
  std::vector<Document> documents;
  // SQLite gives the other columns of the row that has the maximum.
  Statement& s = db_.Use(
      "SELECT kind, max(time_ns), bytes FROM document WHERE host = ? AND time_ns <= ? GROUP BY kind ORDER BY kind");
  s.Int(host).Int(time_ns);
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) documents.push_back({s.ColumnBytes(0), s.ColumnInt(1), s.ColumnBytes(2)});
  if (!row.ok()) return row.status();
  return documents;
}

absl::Status EventTables::PutFinding(const StoredFinding& finding) {
  return db_.Use("INSERT OR REPLACE INTO finding VALUES (?, ?, ?, ?)")
      .Uint(finding.id)
      .Int(finding.start_ns)
      .Int(finding.end_ns)
      .Blob(finding.body)
      .Run();
}

absl::StatusOr<std::vector<StoredFinding>> EventTables::Findings(const FindingQuery& query) {
  std::vector<StoredFinding> findings;
  Statement& s = db_.Use(
      "SELECT id, start_ns, end_ns, body FROM finding WHERE (?1 = 0 OR (start_ns <= ?1 AND (end_ns = 0 OR end_ns > "
      "?1))) AND (?2 = 0 OR end_ns = 0) AND (?3 = 0 OR id = ?3) ORDER BY start_ns DESC, id LIMIT ?4");
  s.Int(query.at_ns).Int(query.open ? 1 : 0).Uint(query.id).Uint(std::min(query.limit, kMostEvents));
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step())
    findings.push_back({s.ColumnUint(0), s.ColumnInt(1), s.ColumnInt(2), s.ColumnBytes(3)});
  if (!row.ok()) return row.status();
  return findings;
}

absl::Status EventTables::PutOrder(const StoredOrder& order) {
  return db_.Use("INSERT OR REPLACE INTO operator_order VALUES (?, ?, ?)")
      .Text(order.kind)
      .Uint(order.id)
      .Blob(order.body)
      .Run();
}

absl::Status EventTables::RemoveOrder(const std::string& kind, uint64_t id) {
  return db_.Use("DELETE FROM operator_order WHERE kind = ? AND id = ?").Text(kind).Uint(id).Run();
}

absl::StatusOr<std::vector<StoredOrder>> EventTables::Orders(const std::string& kind) {
  std::vector<StoredOrder> orders;
  Statement& s = db_.Use("SELECT id, body FROM operator_order WHERE kind = ? ORDER BY id").Text(kind);
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row; row = s.Step()) orders.push_back({kind, s.ColumnUint(0), s.ColumnBytes(1)});
  if (!row.ok()) return row.status();
  return orders;
}

}  // namespace cw::fleet
