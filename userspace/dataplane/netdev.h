// SPDX-License-Identifier: Apache-2.0
//
// Facts about a network interface of the calling thread's network namespace, by netlink and ioctl: /sys/class/net shows
// the namespace that mounted it, which need not be ours.
#pragma once

#include <net/if.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cw::dataplane {

// NotFound: there is none. Unavailable: nothing is known, such as without a descriptor to ask with.
absl::StatusOr<uint32_t> IfindexOf(const std::string& ifname);
absl::StatusOr<std::string> IfnameOf(uint32_t ifindex);
absl::StatusOr<uint32_t> MtuOf(const std::string& ifname);  // bytes

// FailedPrecondition: it is no Ethernet device.
absl::StatusOr<std::array<uint8_t, 6>> MacOf(uint32_t ifindex);

// The namespace's identity: the inode of its nsfs file.
absl::StatusOr<uint64_t> NetnsInode();

// How many tc filters of any owner hang at one side of the interface's clsact.
absl::StatusOr<int> CountClsactFilters(uint32_t ifindex, bool egress);

// Is the device up, with a carrier?
absl::StatusOr<bool> LinkUp(const std::string& ifname);
// Its Ethernet address.
absl::StatusOr<std::array<uint8_t, 6>> MacOf(const std::string& ifname);

}  // namespace cw::dataplane
