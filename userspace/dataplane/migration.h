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
  uint64_t no_room = 0;
};

enum class Fill : uint8_t {
  kAll,
  kNews,  // records that are not there yet, and flows that moved since
};

// All records of a map of that name, but none of a ring. What packets between the reading and the exchange would make
// wrong (which PSN comes next, marks of data under way) begins anew. FailedPrecondition: a map is not as its layout
// says, or of another kind than the other; nothing was written.
absl::StatusOr<Filled> FillMap(const std::string& name, const maps::BpfMap& from, const MapLayout& of,
                               const maps::BpfMap& to, const MapLayout& layout, Fill what);

}  // namespace cw::dataplane
