// SPDX-License-Identifier: Apache-2.0
//
// The store as one file, for one machine: nothing to install, nothing to run. SQLite in WAL mode; a compressed block of
// a minute per host instead of a row per path and interval, and a reserve file that is given up when the disk is full,
// since deleting needs room, too. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct SqliteOptions {
  uint64_t reserve_bytes = 8 << 20;
  uint64_t most_pages = 0;  // of 4096 bytes; 0 = as many as the disk holds
};

// FailedPrecondition: the file is of a newer release. DataLoss: it is damaged.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& file, const SqliteOptions& options = {});

}  // namespace cw::fleet
