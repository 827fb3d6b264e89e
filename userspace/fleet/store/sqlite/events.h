// SPDX-License-Identifier: Apache-2.0
//
// What has no ladder: events, documents, hop lists, findings, orders. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/fleet/store/sqlite/database.h"
#include "userspace/fleet/store/sqlite/tables.h"

namespace cw::fleet {

// The statement that answers it: by the narrowest index. Bound are after, from, to, host, type, limit. A literal.
const char* EventSql(const EventQuery& query);

class EventTables {
 public:
  EventTables(Database& db, Tables& tables) : db_(db), tables_(tables) {}

  absl::Status Add(int64_t host, const HostBatch& batch);
  absl::StatusOr<EventPage> Page(const EventQuery& query);
  absl::StatusOr<std::vector<Document>> DocumentsAt(int64_t host, int64_t time_ns);  // by kind
  absl::StatusOr<std::vector<HopList>> Hops(int64_t host);
  absl::Status PutFinding(const StoredFinding& finding);
  absl::StatusOr<std::vector<StoredFinding>> Findings(const FindingQuery& query);
  absl::Status PutOrder(const StoredOrder& order);
  absl::Status RemoveOrder(const std::string& kind, uint64_t id);
  absl::StatusOr<std::vector<StoredOrder>> Orders(const std::string& kind);

 private:
  Database& db_;
  Tables& tables_;
};

}  // namespace cw::fleet
