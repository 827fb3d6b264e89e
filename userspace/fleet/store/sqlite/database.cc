// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/database.h"

#include "absl/strings/str_cat.h"

namespace cw::fleet {

absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what) {
  const std::string text = absl::StrCat(what, ": ", db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db));
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
      return absl::OkStatus();
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          text + "; free some room on the store's file system, or keep less (fleet retention)");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text + "; restore the file, or move it away: the service begins a new one");
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_ERROR:
      return absl::InternalError(text);
    default:
      // A full disk shows as a failed write of the journal, too.
      if (code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_SHMSIZE) return absl::ResourceExhaustedError(text);
      return absl::UnavailableError(text +
                                    "; see that the store's file can be written and that no other program holds it");
  }
}

Statement& Statement::Int(int64_t value) {
  sqlite3_bind_int64(statement_.get(), next_++, value);
  return *this;
}

Statement& Statement::Text(absl::string_view value) {
  sqlite3_bind_text64(statement_.get(), next_++, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Blob(absl::string_view value) {
  // A null pointer would be NULL, not an empty blob.
  sqlite3_bind_blob64(statement_.get(), next_++, value.data() == nullptr ? "" : value.data(), value.size(),
                      SQLITE_STATIC);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  if (!prepared_.ok()) return prepared_;
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const absl::Status status = SqliteStatus(db_, sqlite3_extended_errcode(db_), "the store");
  Reset();
  if (status.ok()) return absl::InternalError("the store: SQLite failed without a reason");
  return status;
}

absl::Status Statement::Run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = Step();
  Reset();
  return row.status();
}

void Statement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  next_ = 1;
}

std::string Statement::ColumnBytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  if (bytes == nullptr) return "";
  return {static_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& file) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(file.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> db(new Database(raw));
  if (code != SQLITE_OK) return SqliteStatus(raw, code, "cannot open " + file);
  sqlite3_busy_timeout(raw, 5000);  // a person with the command line tool
  for (const char* pragma :
       {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=OFF", "PRAGMA temp_store=MEMORY",
        "PRAGMA cache_size=-16384", "PRAGMA journal_size_limit=16777216"}) {
    if (absl::Status status = db->Exec(pragma); !status.ok()) return status;
  }
  return db;
}

absl::Status Database::Exec(const std::string& sql) {
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return SqliteStatus(db_.get(), sqlite3_extended_errcode(db_.get()), "the store");
}

Statement& Database::Use(const char* sql) {
  std::unique_ptr<Statement>& kept = statements_[sql];
  if (kept == nullptr) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    kept = std::make_unique<Statement>(db_.get(), statement, SqliteStatus(db_.get(), code, sql));
  }
  kept->Reset();
  return *kept;
}

absl::StatusOr<int64_t> Database::Number(const char* sql) {
  Statement& statement = Use(sql);
  const absl::StatusOr<bool> row = statement.Step();
  if (!row.ok()) return row.status();
  const int64_t number = *row ? statement.ColumnInt(0) : 0;
  statement.Reset();
  return number;
}

absl::Status Transaction::Begin() {
  absl::Status status = db_.Exec("BEGIN IMMEDIATE");
  open_ = status.ok();
  return status;
}

absl::Status Transaction::Commit() {
  absl::Status status = db_.Exec("COMMIT");
  if (status.ok()) open_ = false;
  return status;
}

Transaction::~Transaction() {
  // After some errors SQLite has rolled back itself.
  if (open_ && sqlite3_get_autocommit(db_.raw()) == 0) db_.Exec("ROLLBACK").IgnoreError();
}

}  // namespace cw::fleet
