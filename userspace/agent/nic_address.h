// SPDX-License-Identifier: Apache-2.0
//
// Which device a [[nic]] means, and where its address is, judged from what this host has now. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/agent/host_net.h"
#include "userspace/model/addr.h"

namespace cw::agent {

// The ifindex of the device with this very name. NotFound: there is none, and the message says so where it is an
// alternative name of a device, or the label of an address.
absl::StatusOr<uint32_t> DeviceCalled(const HostNet& net, const std::string& name);

// The device's first of IPv4; where there is none, its first global one of IPv6. FailedPrecondition: it has neither.
absl::StatusOr<Addr> FirstAddress(const HostNet& net, uint32_t ifindex);

// "" where the device has the address, or one that shares its packets has it: a loopback or dummy device (RoCE
// addresses that are routed), a bond, bridge or VRF that it is a port of, a VLAN on top of it. Otherwise where the
// address is: "address 10.0.0.1 is on eth1 now", "address 10.0.0.1 is gone from eth0". device: its name now.
std::string WhyNoAddress(const HostNet& net, uint32_t ifindex, const std::string& device, const Addr& address);

// The device's addresses but link-local ones, as a list; "none".
std::string AddressesOf(const HostNet& net, uint32_t ifindex);

}  // namespace cw::agent
