// SPDX-License-Identifier: Apache-2.0
//
// What has no ladder: events, documents, findings, orders. Threads: one at a time.
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
  // `day_bytes`: of events and documents, what is kept of one host and UTC day of arrival.
  EventTables(Database& db, Tables& tables, uint64_t day_bytes) : db_(db), tables_(tables), day_bytes_(day_bytes) {}

  // How many were left out since the host has had its share of the day.
  absl::StatusOr<uint64_t> Add(int64_t host, const HostBatch& batch, int64_t now_ns);
  absl::StatusOr<EventPage> Page(const EventQuery& query);
  absl::StatusOr<std::vector<Document>> DocumentsAt(int64_t host, int64_t time_ns);  // by kind
  absl::Status PutFinding(const StoredFinding& finding);
  absl::StatusOr<std::vector<StoredFinding>> Findings(const FindingQuery& query);
  absl::Status PutOrder(const StoredOrder& order);
  absl::Status RemoveOrder(const std::string& kind, uint64_t id);
  absl::StatusOr<std::vector<StoredOrder>> Orders(const std::string& kind);

 private:
  absl::StatusOr<uint64_t> TakenOfShare(int64_t host, int64_t day);
  absl::StatusOr<bool> HasEvent(int64_t host, uint64_t run, uint64_t seq);
  absl::Status AddEvent(int64_t host, uint64_t run, const StoredEvent& event);
  absl::Status AddDocument(int64_t host, const Document& document);

  Database& db_;
  Tables& tables_;
  const uint64_t day_bytes_;
};

}  // namespace cw::fleet
