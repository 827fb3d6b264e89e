// SPDX-License-Identifier: Apache-2.0
//
// SQLite with Status instead of codes. Full disks are ResourceExhausted, locked or failing ones Unavailable, a damaged
// file DataLoss. Threads: one at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cw::fleet {

// One prepared statement: bind in order, then step. One that could not be prepared says so when it is stepped, so that
// callers look at one place for errors.
class Statement {
 public:
  Statement(sqlite3* db, sqlite3_stmt* statement, absl::Status prepared)
      : db_(db), statement_(statement, sqlite3_finalize), prepared_(std::move(prepared)) {}

  Statement& Int(int64_t value);
  Statement& Uint(uint64_t value) { return Int(static_cast<int64_t>(value)); }
  Statement& Text(absl::string_view value);  // what it views lives until Reset
  Statement& Blob(absl::string_view value);

  absl::StatusOr<bool> Step();  // true: a row is there
  absl::Status Run();           // to its end, then Reset
  void Reset();

  int64_t ColumnInt(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  uint64_t ColumnUint(int column) const { return static_cast<uint64_t>(ColumnInt(column)); }
  std::string ColumnBytes(int column) const;

 private:
  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
  absl::Status prepared_;
  int next_ = 1;
};

class Database {
 public:
  // In the mode WAL, each commit on the disk when it returns.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& file);

  absl::Status Exec(const std::string& sql);
  // Prepared once and kept; reset, for one use at a time. `sql` is a literal: it is found again by its address.
  Statement& Use(const char* sql);
  absl::StatusOr<int64_t> Number(const char* sql);  // the first column of the first row, 0 if there is none
  uint64_t Changes() const { return static_cast<uint64_t>(sqlite3_changes64(db_.get())); }
  sqlite3* raw() const { return db_.get(); }

 private:
  explicit Database(sqlite3* db) : db_(db, sqlite3_close_v2) {}
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_;
  absl::flat_hash_map<const char*, std::unique_ptr<Statement>> statements_;  // gone before db_
};

absl::Status SqliteStatus(sqlite3* db, int code, absl::string_view what);

// Rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(Database& db) : db_(db) {}
  absl::Status Begin();
  absl::Status Commit();
  ~Transaction();

 private:
  Database& db_;
  bool open_ = false;
};

}  // namespace cw::fleet
