// SPDX-License-Identifier: Apache-2.0
//
// How a profiler comes to its memory: the agent's part of the conversation of userspace/inproc/nccl/cw_profiler.h.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/profile/profiles.h"

namespace cw::profile {

// Sends to the profiler; fd: goes with it and stays the caller's, −1: none.
using Give = std::function<absl::Status(absl::Span<const uint8_t> answer, int fd)>;

// Takes a profiler's message. InvalidArgument: it is not one of this release's, with what to do; ResourceExhausted.
absl::Status TakeHello(Profiles& profiles, uint64_t connection, uint32_t pid, uint32_t uid,
                       absl::Span<const uint8_t> message, const Give& give);

}  // namespace cw::profile
