// SPDX-License-Identifier: Apache-2.0
//
// What a NIC is called on this host's network: its addresses, as the kernel lists them now.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

namespace cw::agent {

// The first of IPv4; where there is none, the first global one of IPv6. FailedPrecondition: it has neither.
absl::StatusOr<Addr> FirstAddress(const std::string& device);

// Of no device, too: false.
bool HasAddress(const std::string& device, const Addr& wanted);
bool IsLoopback(const std::string& device);

}  // namespace cw::agent
