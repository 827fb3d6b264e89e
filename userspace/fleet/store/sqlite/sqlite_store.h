// SPDX-License-Identifier: Apache-2.0
//
// The store as one file, for one machine: nothing to install, nothing to run. SQLite in WAL mode; a compressed block of
// a minute per host instead of a row per path and interval, and a reserve file that is given up when the disk is full,
// since deleting needs room, too. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct SqliteOptions {
  uint64_t reserve_bytes = 8 << 20;
  uint64_t most_pages = 0;  // of 4096 bytes; 0 = as many as the disk holds
  // Of one host. It has some hundreds to some thousands of paths and ways, and a year's memory holds those of all its
  // restarts; together 30 MB at most. Answers have all lists of a host, so they are bounded by that, too.
  int64_t most_paths = 50'000;
  int64_t most_hop_lists = 20'000;
  // Of one host and UTC day of arrival, payload, type and 64 bytes each: 200,000 events, where a host in trouble has
  // some thousands. At the 64 KiB a second that it may send it would fill 5.6 GB.
  uint64_t event_bytes_a_day = 64 << 20;
  std::function<int64_t()> now_ns;  // when something arrives; empty: the system's clock
};

// FailedPrecondition: the file is of a newer release. DataLoss: it is damaged.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& file, const SqliteOptions& options = {});

}  // namespace cw::fleet
