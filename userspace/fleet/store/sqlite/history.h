// SPDX-License-Identifier: Apache-2.0
//
// Questions on what a host measured: which tier answers, and paths by their keys. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/fleet/store/sqlite/events.h"
#include "userspace/fleet/store/sqlite/names.h"
#include "userspace/fleet/store/sqlite/tables.h"
#include "userspace/fleet/store/sqlite/work.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

class History {
 public:
  History(Tables& tables, NameTables& names, WorkTables& work, EventTables& events)
      : tables_(tables), names_(names), work_(work), events_(events) {}

  // `id` is the host's.
  absl::StatusOr<HostView> LatestAt(const std::string& host, int64_t id, int64_t time_ns, absl::Duration reach);
  absl::StatusOr<RangeReply> Range(int64_t id, const RangeQuery& query);
  absl::StatusOr<WorkReply> Work(int64_t id, const WorkQuery& query);

 private:
  absl::StatusOr<size_t> TierFor(const RangeQuery& query);
  absl::StatusOr<std::vector<PathSample>> Named(int64_t host, absl::StatusOr<std::vector<NumberedSample>> samples,
                                                const std::optional<PathKey>& only);

  Tables& tables_;
  NameTables& names_;
  WorkTables& work_;
  EventTables& events_;
};

}  // namespace cw::fleet
