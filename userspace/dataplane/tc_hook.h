// SPDX-License-Identifier: Apache-2.0
//
// tc egress and ingress on one interface of the calling thread's network namespace: by a tcx link where the kernel has
// them (Linux 6.6), by a filter of clsact otherwise. A filter that an earlier release attached stays one as long as it
// is there, so that no packet passes two programs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/unique_fd.h"
#include "userspace/dataplane/pins.h"
#include "userspace/dataplane/program_set.h"
#include "userspace/dataplane/tc_side.h"

namespace cw::dataplane {

// Attaches, or exchanges our own program atomically. The link, which is pinned; not open where it is a filter.
// AlreadyExists, naming it, when another filter has our handle and priority.
absl::StatusOr<maps::UniqueFd> AttachTc(const ProgramSet& programs, const PinFolder& pins, TcSide side,
                                        uint32_t ifindex);

// Removes link and filter of this instance: owned_by says which filters are. Ok when there is nothing of ours.
absl::Status DetachTc(const PinFolder& pins, TcSide side, uint32_t ifindex, OwnedBy owned_by);

// Is this set's program attached?
absl::StatusOr<bool> IsTcAttached(const ProgramSet& programs, TcSide side, uint32_t ifindex);

}  // namespace cw::dataplane
