// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/retention.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/fleet/store/sqlite/work.h"

namespace cw::fleet {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kAheadNs = 3600 * kNsPerS;  // of what hosts told last: a fleet that is silent keeps what it has
constexpr uint64_t kShare = 16;               // of what is there goes at once when the disk is full

std::string TierName(size_t tier) { return absl::StrCat("paths, ", absl::FormatDuration(kResolution[tier]), " each"); }

std::string OlderThan(absl::Duration age) { return absl::StrCat("older than ", absl::FormatDuration(age)); }
std::string MoreThan(int64_t bytes, uint64_t keep) {
  return absl::StrCat("all together ", bytes, " bytes, of which ", keep, " are to be kept");
}

// With the bytes that `sum` tells.
absl::StatusOr<Deletion> Sized(Deletion deletion, Statement& sum) {
  const absl::StatusOr<bool> row = sum.Step();
  if (!row.ok()) return row.status();
  deletion.bytes = sum.ColumnUint(0);
  sum.Reset();
  return deletion;
}

}  // namespace

absl::StatusOr<int64_t> RetentionRules::TierBytes(size_t tier) {
  Statement& s = db_.Use("SELECT bytes FROM tier WHERE tier = ?").Int(static_cast<int64_t>(tier));
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const int64_t bytes = *row ? s.ColumnInt(0) : 0;
  s.Reset();
  return bytes;
}

absl::StatusOr<int64_t> RetentionRules::OldestUntil(size_t tier, uint64_t bytes, bool fresh) {
  Statement& s = db_.Use(
                        "SELECT end_s, sum(bytes) FROM (SELECT start_s + ?2 AS end_s, length(blob) AS bytes FROM chunk "
                        "WHERE tier = ?1 UNION ALL SELECT start_s + ?3, length(blob) FROM work WHERE tier = ?1 "
                        "UNION ALL SELECT start_s + ?3, length(blob) FROM work_fresh WHERE ?1 = 0 AND ?4) "
                        "GROUP BY end_s ORDER BY end_s")
                     .Int(static_cast<int64_t>(tier))
                     .Int(kSpanS[tier])
                     .Int(WorkTables::kSpanS)
                     .Int(fresh ? 1 : 0);
  uint64_t covered = 0;
  int64_t until_ns = 0;
  absl::StatusOr<bool> row = s.Step();
  for (; row.ok() && *row && covered < bytes; row = s.Step()) {
    covered += s.ColumnUint(1);
    until_ns = s.ColumnInt(0) * kNsPerS;
  }
  s.Reset();
  if (!row.ok()) return row.status();
  return until_ns;
}

absl::StatusOr<int64_t> RetentionRules::EventsUntil(uint64_t count) {
  Statement& s = db_.Use("SELECT time_ns FROM event ORDER BY time_ns LIMIT 1 OFFSET ?").Uint(count - 1);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const int64_t time_ns = *row ? std::min(s.ColumnInt(0), INT64_MAX - 1) + 1 : 0;
  s.Reset();
  return time_ns;
}

absl::StatusOr<std::vector<Deletion>> RetentionRules::Plan(int64_t now_ns, const Retention& retention) {
  // A clock that is ahead deletes nothing that hosts told of late.
  const absl::StatusOr<int64_t> newest = db_.Number(
      "SELECT max((SELECT coalesce(max(newest_ns), 0) FROM host), (SELECT coalesce(max(time_ns), 0) FROM event))");
  if (!newest.ok()) return newest.status();
  if (*newest > 0) now_ns = std::min(now_ns, *newest + kAheadNs);
  std::vector<Deletion> plan;
  const auto add = [&plan](const absl::StatusOr<Deletion>& d) {
    if (d.ok() && d->bytes > 0) plan.push_back(*d);
    return d.status();
  };
  for (size_t tier = 0; tier < kTiers; ++tier) {
    if (absl::Status status = add(PlanTier(tier, now_ns, retention.tiers[tier])); !status.ok()) return status;
  }
  const absl::StatusOr<Deletion> events = PlanEvents(now_ns, retention.events);
  absl::Status status = add(events);
  if (status.ok()) status = add(PlanFindings(*events));
  if (!status.ok()) return status;
  return plan;
}

absl::StatusOr<Deletion> RetentionRules::PlanTier(size_t tier, int64_t now_ns, const Keep& keep) {
  Deletion d{.what = TierName(tier),
             .tier = static_cast<int>(tier),
             .before_ns = now_ns - absl::ToInt64Nanoseconds(keep.age),
             .reason = OlderThan(keep.age)};
  const absl::StatusOr<int64_t> bytes = keep.bytes > 0 ? TierBytes(tier) : 0;
  if (!bytes.ok()) return bytes.status();
  if (*bytes > static_cast<int64_t>(keep.bytes)) {
    const absl::StatusOr<int64_t> until = OldestUntil(tier, static_cast<uint64_t>(*bytes) - keep.bytes, /*fresh=*/true);
    if (!until.ok()) return until.status();
    if (*until > d.before_ns) {
      d.before_ns = *until;
      d.reason = MoreThan(*bytes, keep.bytes);
    }
  }
  Statement& s = db_.Use(
                        "SELECT (SELECT coalesce(sum(length(blob)), 0) FROM chunk WHERE tier = ?1 AND start_s <= ?2) "
                        "+ (SELECT coalesce(sum(length(blob)), 0) FROM work WHERE tier = ?1 AND start_s <= ?3) "
                        "+ (SELECT coalesce(sum(length(blob)), 0) FROM work_fresh WHERE ?1 = 0 AND start_s <= ?3)")
                     .Int(static_cast<int64_t>(tier))
                     .Int(d.before_ns / kNsPerS - kSpanS[tier])
                     .Int(d.before_ns / kNsPerS - WorkTables::kSpanS);
  return Sized(std::move(d), s);
}

absl::StatusOr<Deletion> RetentionRules::PlanEvents(int64_t now_ns, const Keep& keep) {
  Deletion d{.what = "events",
             .tier = kTierOfEvents,
             .before_ns = now_ns - absl::ToInt64Nanoseconds(keep.age),
             .reason = OlderThan(keep.age)};
  const absl::StatusOr<int64_t> bytes = keep.bytes > 0 ? TierBytes(kTierOfEvents) : 0;
  if (!bytes.ok()) return bytes.status();
  if (*bytes > static_cast<int64_t>(keep.bytes)) {
    // Only where some have to go: it looks at an entry of each.
    const absl::StatusOr<int64_t> count = db_.Number("SELECT count(*) FROM event");
    if (!count.ok()) return count.status();
    const double share = 1 - static_cast<double>(keep.bytes) / static_cast<double>(*bytes);
    const absl::StatusOr<int64_t> until = EventsUntil(static_cast<uint64_t>(share * static_cast<double>(*count)) + 1);
    if (!until.ok()) return until.status();
    if (*until > d.before_ns) {
      d.before_ns = *until;
      d.reason = MoreThan(*bytes, keep.bytes);
    }
  }
  Statement& s = db_.Use("SELECT coalesce(sum(length(payload) + 64), 0) FROM event WHERE time_ns < ?").Int(d.before_ns);
  return Sized(std::move(d), s);
}

// Findings are memory of what events told, but a fleet without old events has old findings, too.
absl::StatusOr<Deletion> RetentionRules::PlanFindings(const Deletion& events) {
  Deletion d{.what = "findings", .tier = kTierOfFindings, .before_ns = events.before_ns, .reason = events.reason};
  Statement& s = db_.Use("SELECT coalesce(sum(length(body) + 64), 0) FROM finding WHERE end_ns <> 0 AND end_ns < ?")
                     .Int(d.before_ns);
  return Sized(std::move(d), s);
}

absl::Status RetentionRules::DeleteOne(const Deletion& d) {
  if (d.tier == kTierOfEvents) return db_.Use("DELETE FROM event WHERE time_ns < ?").Int(d.before_ns).Run();
  if (d.tier == kTierOfFindings)
    return db_.Use("DELETE FROM finding WHERE end_ns <> 0 AND end_ns < ?").Int(d.before_ns).Run();
  absl::Status status = tables_.DeleteBlocks(static_cast<size_t>(d.tier), d.before_ns).status();
  if (!status.ok() || d.tier != static_cast<int>(kTiers) - 1) return status;
  // Documents go with the ladder's longest memory, but for the newest of each kind, which still holds.
  return db_
      .Use(
          "DELETE FROM document WHERE time_ns < ?1 AND time_ns < (SELECT max(n.time_ns) FROM document n "
          "WHERE n.host = document.host AND n.kind = document.kind)")
      .Int(d.before_ns)
      .Run();
}

absl::Status RetentionRules::Delete(const std::vector<Deletion>& plan) {
  for (const Deletion& d : plan) {
    if (absl::Status status = DeleteOne(d); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> RetentionRules::DropOldestSamples() {
  for (size_t tier = 0; tier < kTiers; ++tier) {
    const absl::StatusOr<int64_t> bytes = TierBytes(tier);
    if (!bytes.ok()) return bytes.status();
    if (*bytes <= 0) continue;
    const absl::StatusOr<int64_t> until =
        OldestUntil(tier, static_cast<uint64_t>(*bytes) / kShare + 1, /*fresh=*/false);
    if (!until.ok()) return until.status();
    const absl::StatusOr<uint64_t> gone = tables_.DeleteBlocks(tier, *until);
    if (!gone.ok() || *gone > 0) return gone;
  }
  // What is in no block yet: what ends first.
  const absl::StatusOr<int64_t> end = db_.Number(
      "SELECT min(e) FROM (SELECT min(start_s) + 60 AS e FROM fresh UNION ALL SELECT min(start_s) + 600 FROM "
      "work_fresh)");
  const absl::StatusOr<int64_t> before =
      db_.Number("SELECT (SELECT count(*) FROM fresh) + (SELECT count(*) FROM work_fresh)");
  if (!end.ok()) return end.status();
  if (!before.ok() || *before == 0) return before.ok() ? absl::StatusOr<uint64_t>(uint64_t{0}) : before.status();
  return DropFresh(*end);
}

absl::StatusOr<uint64_t> RetentionRules::DropFresh(int64_t end_s) {
  Statement& s = db_.Use(
                        "SELECT (SELECT coalesce(sum(length(blob)), 0) FROM fresh WHERE start_s <= ?1) + "
                        "(SELECT coalesce(sum(length(blob)), 0) FROM work_fresh WHERE start_s <= ?2)")
                     .Int(end_s - kSpanS[0])
                     .Int(end_s - WorkTables::kSpanS);
  const absl::StatusOr<bool> row = s.Step();
  if (!row.ok()) return row.status();
  const uint64_t bytes = s.ColumnUint(0);
  s.Reset();
  const absl::StatusOr<uint64_t> gone = tables_.DeleteBlocks(0, end_s * kNsPerS);
  if (!gone.ok()) return gone.status();
  return bytes;
}

// By number, not by time: where many share one time, nothing lies before it.
absl::StatusOr<uint64_t> RetentionRules::DropOldestEvents() {
  const absl::StatusOr<int64_t> count = db_.Number("SELECT count(*) FROM event");
  if (!count.ok()) return count.status();
  const absl::Status status =
      db_.Use("DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY time_ns, id LIMIT ?)")
          .Uint(static_cast<uint64_t>(*count) / kShare + 1)
          .Run();
  if (!status.ok()) return status;
  return db_.Changes();
}

}  // namespace cw::fleet
