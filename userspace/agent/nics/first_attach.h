// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a moment in which nobody feels that programs come to a NIC ([[nic]] wait_for_idle). Pure but for what it
// asks. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/rdma/nldev.h"

namespace cw::agent {

// Why programs are not attached to this device yet, for people: queue pairs use it, and attaching may cost them
// packets. "": nothing is in the way; so, too, where the kernel lists no queue pairs (no RDMA subsystem).
// does: dataplane::WhatFirstAttachDoes.
std::string WhyNotYet(uint32_t ifindex, const std::string& does,
                      const std::function<absl::StatusOr<std::unique_ptr<rdma::QpLists>>()>& open);

}  // namespace cw::agent
