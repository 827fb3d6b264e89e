// SPDX-License-Identifier: Apache-2.0
//
// tc egress and ingress (clsact) on one interface of the calling thread's network namespace, with CW_TC_HANDLE and
// CW_TC_PRIORITY.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "userspace/dataplane/program_set.h"

namespace cw::dataplane {

enum class TcSide { kEgress, kIngress };

// Attaches, or exchanges our own program atomically. AlreadyExists, naming it, when another filter has our handle and
// priority. `clsact_marker`: a file made when the clsact qdisc is ours, so that a later agent knows what to remove.
absl::Status AttachTc(const ProgramSet& programs, TcSide side, uint32_t ifindex, const std::string& clsact_marker);

// Is the filter in our place one of this instance? owned_by(program) decides; info: null where it may not be read.
// Removes it, and after egress, which goes last, the qdisc when it was ours and nobody else's filter is left in it. Ok
// when there is nothing of ours.
absl::Status DetachTc(TcSide side, uint32_t ifindex,
                      absl::FunctionRef<bool(uint32_t id, const ProgramInfo* info)> owned_by,
                      const std::string& clsact_marker);

}  // namespace cw::dataplane
