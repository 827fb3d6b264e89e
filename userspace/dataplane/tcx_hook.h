// SPDX-License-Identifier: Apache-2.0
//
// tc programs by tcx links, pinned: they come and go without a queueing discipline, so no packet is dropped.
// Interfaces are those of the calling thread's network namespace.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/dataplane/pinned_link.h"
#include "userspace/dataplane/pins.h"
#include "userspace/dataplane/tc_side.h"

namespace cw::dataplane {

// Of this kernel, asked at an interface that is there.
bool HasTcx(uint32_t ifindex);

// Is this program attached there by tcx, whoever did it?
bool IsOnTcx(TcSide side, uint32_t ifindex, uint32_t program_id);

// Adopts the pinned link, exchanging its program where it is another; otherwise attaches in front of all others, which
// see each packet next. The link is open and pinned.
absl::StatusOr<maps::UniqueFd> AttachTcx(const PinFolder& pins, TcSide side, uint32_t ifindex, int program_fd,
                                         uint32_t program_id);

// Detaches and unpins. True: there was a link.
absl::StatusOr<bool> DetachTcx(const PinFolder& pins, TcSide side, uint32_t ifindex);

}  // namespace cw::dataplane
