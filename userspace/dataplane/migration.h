// SPDX-License-Identifier: Apache-2.0
//
// Fills the maps of this release from those that a release with other records left. The former programs run meanwhile
// and go on counting there; what that leaves behind by is the time until they are exchanged. Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "maps/bpf_map.h"
#include "userspace/dataplane/record_layout.h"

namespace cw::dataplane {

struct Filled {
  uint64_t records = 0;
  uint64_t no_room = 0;  // the new map is smaller
};

enum class Fill : uint8_t {
  kAll,
  kMissing,  // only records that are not there yet
};

// All records of a map of that name, but none of a ring. What packets between the reading and the exchange would make
// wrong (which PSN comes next, marks of data under way) begins anew.
absl::StatusOr<Filled> FillMap(const std::string& name, const maps::BpfMap& from, const MapLayout& of,
                               const maps::BpfMap& to, const MapLayout& layout, Fill what);

}  // namespace cw::dataplane
