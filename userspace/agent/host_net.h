// SPDX-License-Identifier: Apache-2.0
//
// The network devices and addresses of the calling thread's network namespace, by rtnetlink(7). An address belongs to a
// device by its index: labels (eth0:1) and alternative names are only names. Thread rule: any thread.
#pragma once

#include <linux/netlink.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

namespace cw::agent {

struct HostLink {
  uint32_t ifindex = 0;
  std::string name;
  std::vector<std::string> altnames;
  std::string kind;     // vlan, dummy, bond, …; "" = a physical device, or the kernel does not say
  uint32_t master = 0;  // ifindex of the bond, bridge or VRF that it is a port of; 0 = none
  uint32_t lower = 0;   // ifindex of the device that it is on top of, or of a veth's peer; 0 = none in this namespace
  bool loopback = false;
};

struct HostAddress {
  uint32_t ifindex = 0;
  Addr address;
  std::string label;  // IPv4 only; mostly the device's name
};

// As the kernel listed them, which may be a moment ago.
struct HostNet {
  std::vector<HostLink> links;
  std::vector<HostAddress> addresses;

  const HostLink* LinkAt(uint32_t ifindex) const;             // nullptr: none
  const HostLink* LinkCalled(const std::string& name) const;  // by its name alone
  bool HasAddressOn(uint32_t ifindex, const Addr& address) const;
};

// Unavailable: nothing is known, such as without a descriptor to ask with.
absl::StatusOr<std::vector<HostLink>> ReadHostLinks();
absl::StatusOr<std::vector<HostAddress>> ReadHostAddresses();
absl::StatusOr<HostNet> ReadHostNet();

HostAddress AddressIn(const nlmsghdr& message);  // of RTM_NEWADDR or RTM_DELADDR, whole

}  // namespace cw::agent
