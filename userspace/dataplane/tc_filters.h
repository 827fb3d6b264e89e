// SPDX-License-Identifier: Apache-2.0
//
// tc filters of clsact, with CW_TC_HANDLE and CW_TC_PRIORITY: how programs are attached before Linux 6.6. clsact is
// made where there is none, and never removed: making and removing it resets the device's queueing discipline, which
// may drop packets.
// Interfaces are those of the calling thread's network namespace.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/dataplane/tc_side.h"

namespace cw::dataplane {

// Id of the BPF program in our place; 0: there is no such filter. AlreadyExists: it is a filter of another kind.
absl::StatusOr<uint32_t> FilterInPlace(TcSide side, uint32_t ifindex);

// Is this program, which is in our place, one of ours?
bool IsFilterOf(OwnedBy ours, TcSide side, uint32_t ifindex, uint32_t id);

// Attaches, or exchanges our own program atomically. AlreadyExists, naming it, where the program is not ours.
absl::Status AttachFilter(TcSide side, uint32_t ifindex, int program_fd, uint32_t program_id, OwnedBy ours);

// Removes the filter in our place if it is ours. True: it was.
absl::StatusOr<bool> DetachFilter(TcSide side, uint32_t ifindex, OwnedBy ours);

}  // namespace cw::dataplane
