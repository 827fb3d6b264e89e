// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/schema.h"

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

// Samples arrive in `fresh`, a row per batch and minute, and are joined into one block per minute and host (`chunk`,
// tier 0), of which the ladder's upper tiers are made. `due` names the blocks that have to be made anew. `seen` holds
// the sequences that were taken, as ranges, so that a year of them is one row.
constexpr const char* kVersion1 = R"(
CREATE TABLE host(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, newest_ns INTEGER NOT NULL DEFAULT 0);
CREATE TABLE seen(host INTEGER, run INTEGER, first INTEGER, last INTEGER, PRIMARY KEY(host, run, first)) WITHOUT ROWID;
CREATE TABLE path(id INTEGER PRIMARY KEY, host INTEGER, local BLOB, remote BLOB, port INTEGER, reverse INTEGER,
  UNIQUE(host, local, remote, port, reverse));
CREATE TABLE hops(host INTEGER, id INTEGER, list BLOB, PRIMARY KEY(host, id)) WITHOUT ROWID;
CREATE TABLE fresh(id INTEGER PRIMARY KEY, host INTEGER, start_s INTEGER, blob BLOB);
CREATE INDEX fresh_by_host ON fresh(host, start_s);
CREATE TABLE chunk(id INTEGER PRIMARY KEY, tier INTEGER, host INTEGER, start_s INTEGER, blob BLOB,
  UNIQUE(tier, host, start_s));
CREATE INDEX chunk_by_time ON chunk(tier, start_s);
CREATE TABLE due(tier INTEGER, start_s INTEGER, host INTEGER, PRIMARY KEY(tier, start_s, host)) WITHOUT ROWID;
CREATE TABLE event(id INTEGER PRIMARY KEY AUTOINCREMENT, host INTEGER, run INTEGER, seq INTEGER, time_ns INTEGER,
  bound_ns INTEGER, type TEXT, severity INTEGER, payload BLOB, UNIQUE(host, run, seq));
CREATE INDEX event_by_time ON event(time_ns);
CREATE TABLE document(host INTEGER, kind TEXT, time_ns INTEGER, bytes BLOB, PRIMARY KEY(host, kind, time_ns));
CREATE TABLE tier(tier INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, horizon_ns INTEGER NOT NULL);
INSERT INTO tier VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0);
)";

// Findings are few and change: rows, replaced by id. They go with the events.
constexpr const char* kVersion2 = R"(
CREATE TABLE finding(id INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX finding_by_start ON finding(start_ns);
CREATE INDEX finding_open ON finding(end_ns) WHERE end_ns = 0;
)";

// Hosts say where their metrics are, and may leave for good; operators' orders outlive a restart.
constexpr const char* kVersion3 = R"(
ALTER TABLE host ADD COLUMN metrics TEXT NOT NULL DEFAULT '';
ALTER TABLE host ADD COLUMN removed_ns INTEGER NOT NULL DEFAULT 0;
CREATE TABLE operator_order(kind TEXT NOT NULL, id INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(kind, id))
  WITHOUT ROWID;
)";

// Flows, jobs and collectives: a row per batch, joined into blocks as paths are. What older releases kept of them under
// "work" nobody reads.
constexpr const char* kVersion4 = R"(
CREATE TABLE work_fresh(id INTEGER PRIMARY KEY, host INTEGER NOT NULL, start_s INTEGER NOT NULL, blob BLOB NOT NULL);
CREATE INDEX work_fresh_by_host ON work_fresh(host, start_s);
CREATE INDEX work_fresh_by_time ON work_fresh(start_s, host);
CREATE TABLE work(id INTEGER PRIMARY KEY, tier INTEGER NOT NULL, host INTEGER NOT NULL, start_s INTEGER NOT NULL,
  blob BLOB NOT NULL, UNIQUE(tier, host, start_s));
CREATE INDEX work_by_time ON work(tier, start_s);
DELETE FROM document WHERE kind = 'work';
)";

// What waits for its block is bounded by host and block, by what it takes in memory, and counts into its tier.
constexpr const char* kVersion5 = R"(
ALTER TABLE work_fresh ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
DROP INDEX work_fresh_by_host;
CREATE INDEX work_fresh_by_host ON work_fresh(host, start_s, bytes);
UPDATE tier SET bytes = bytes + (SELECT coalesce(sum(length(blob)), 0) FROM work_fresh) WHERE tier = 0;
)";

// Questions on a host's or a type's events by time; old findings without a look at all. What events take is a running
// sum, as that of each tier: triggers keep it, so that no way of adding or deleting forgets to. A host's row counts
// what it told on its latest day of arrival, since a host has a share of each.
constexpr const char* kVersion6 = R"(
CREATE INDEX event_by_host ON event(host, time_ns);
CREATE INDEX event_by_type ON event(type, time_ns);
CREATE INDEX finding_by_end ON finding(end_ns) WHERE end_ns <> 0;
INSERT INTO tier SELECT 3, coalesce(sum(length(payload) + 64), 0), 0 FROM event;
CREATE TRIGGER event_comes AFTER INSERT ON event BEGIN
  UPDATE tier SET bytes = bytes + length(new.payload) + 64 WHERE tier = 3;
END;
CREATE TRIGGER event_goes AFTER DELETE ON event BEGIN
  UPDATE tier SET bytes = bytes - length(old.payload) - 64 WHERE tier = 3;
END;
ALTER TABLE host ADD COLUMN event_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN event_bytes INTEGER NOT NULL DEFAULT 0;
)";

// Paths and hop lists are bounded by host: its row counts them, each says until when samples use it (0: none did yet),
// and a hop list when it was told. What is there may be in use to this day.
constexpr const char* kVersion7 = R"(
ALTER TABLE path ADD COLUMN used_s INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hops ADD COLUMN used_s INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hops ADD COLUMN told_s INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN paths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN hop_lists INTEGER NOT NULL DEFAULT 0;
CREATE TEMP TABLE used AS SELECT 86400 + max(CAST(strftime('%s', 'now') AS INTEGER),
  coalesce((SELECT max(newest_ns) / 1000000000 FROM host), 0)) AS until_s;
UPDATE path SET used_s = (SELECT until_s FROM used);
UPDATE hops SET used_s = (SELECT until_s FROM used);
DROP TABLE used;
UPDATE host SET paths = (SELECT count(*) FROM path WHERE path.host = host.id),
  hop_lists = (SELECT count(*) FROM hops WHERE hops.host = host.id);
CREATE INDEX path_by_use ON path(host, used_s);
CREATE INDEX hops_by_use ON hops(host, used_s, told_s);
CREATE TRIGGER path_comes AFTER INSERT ON path BEGIN UPDATE host SET paths = paths + 1 WHERE id = new.host; END;
CREATE TRIGGER path_goes AFTER DELETE ON path BEGIN UPDATE host SET paths = paths - 1 WHERE id = old.host; END;
CREATE TRIGGER hops_come AFTER INSERT ON hops BEGIN UPDATE host SET hop_lists = hop_lists + 1 WHERE id = new.host; END;
CREATE TRIGGER hops_go AFTER DELETE ON hops BEGIN UPDATE host SET hop_lists = hop_lists - 1 WHERE id = old.host; END;
)";

// Which batches of a run were taken is forgotten when nothing of it can come any more.
constexpr const char* kVersion8 = R"(
ALTER TABLE seen ADD COLUMN used_s INTEGER NOT NULL DEFAULT 0;
UPDATE seen SET used_s = CAST(strftime('%s', 'now') AS INTEGER);
)";

constexpr const char* kSteps[] = {kVersion1, kVersion2, kVersion3, kVersion4,
                                  kVersion5, kVersion6, kVersion7, kVersion8};

}  // namespace

absl::Span<const char* const> SchemaSteps() { return kSteps; }

absl::Status Migrate(Database& db, absl::Span<const char* const> steps) {
  absl::Status status = db.Exec("CREATE TABLE IF NOT EXISTS schema(version INTEGER PRIMARY KEY)");
  if (!status.ok()) return status;
  const absl::StatusOr<int64_t> version = db.Number("SELECT max(version) FROM schema");
  if (!version.ok()) return version.status();
  if (*version > static_cast<int64_t>(steps.size())) {
    return absl::FailedPreconditionError(absl::StrCat("the store has version ", *version, ", this release knows ",
                                                      steps.size(), ": use the newer release, or another file"));
  }
  for (size_t next = static_cast<size_t>(*version); next < steps.size(); ++next) {
    Transaction transaction(db);
    if (status = transaction.Begin(); !status.ok()) return status;
    if (status = db.Exec(steps[next]); !status.ok()) return status;
    status = db.Exec(absl::StrCat("INSERT INTO schema VALUES (", next + 1, ")"));
    if (!status.ok()) return status;
    if (status = transaction.Commit(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace cw::fleet
