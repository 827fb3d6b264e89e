// SPDX-License-Identifier: Apache-2.0
//
// What the pinned maps of an instance hold, pinned beside them: which maps they are, by their numbers, and the types of
// their records. It is pinned last, so it says which maps belong together also where a start was cut short. Threads: as
// PinFolder.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/dataplane/pins.h"
#include "userspace/dataplane/record_layout.h"

namespace cw::dataplane {

struct MapRecord {
  std::map<std::string, uint32_t> ids;  // by name, of those that are pinned
  std::string btf;                      // of the object that made them
  bool operator==(const MapRecord&) const = default;
};

// NotFound: nothing is recorded, as releases before did. InvalidArgument: it cannot be read.
absl::StatusOr<MapRecord> ReadMapRecord(const PinFolder& pins);
absl::Status PinMapRecord(const MapRecord& record, const PinFolder& pins);

}  // namespace cw::dataplane
