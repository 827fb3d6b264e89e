// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nic_address.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cw::agent {
namespace {

// Neither 169.254/16 nor fe80::/10.
bool IsGlobal(const Addr& address) {
  if (address.is_zero()) return false;
  if (address.is_v4()) return address.v4() >> 16 != 0xa9fe;
  return address.bytes[0] != 0xfe || (address.bytes[1] & 0xc0) != 0x80;
}

// Whether packets of an address on `holder` may be those of the NIC.
bool SharesPackets(const HostNet& net, const HostLink& holder, uint32_t nic) {
  if (holder.ifindex == nic || holder.loopback || holder.kind == "dummy") return true;
  if (const HostLink* link = net.LinkAt(nic); link != nullptr && link->master == holder.ifindex) return true;
  constexpr std::array kOnTop = {"vlan", "macvlan", "ipvlan"};
  return holder.lower == nic && std::find(kOnTop.begin(), kOnTop.end(), holder.kind) != kOnTop.end();
}

}  // namespace

absl::StatusOr<uint32_t> DeviceCalled(const HostNet& net, const std::string& name) {
  if (const HostLink* link = net.LinkCalled(name); link != nullptr) return link->ifindex;
  for (const HostLink& link : net.links) {
    if (std::find(link.altnames.begin(), link.altnames.end(), name) != link.altnames.end())
      return absl::NotFoundError(absl::StrCat(name, " is an alternative name of ", link.name, ": write ", link.name));
  }
  for (const HostAddress& address : net.addresses) {
    const HostLink* link = address.label == name ? net.LinkAt(address.ifindex) : nullptr;
    if (link != nullptr)
      return absl::NotFoundError(absl::StrCat(name, " is a label of an address, not a device: write ", link->name,
                                              " and address = \"", address.address.ToString(), "\""));
  }
  const std::string before = name.substr(0, name.find(':'));
  if (before != name && net.LinkCalled(before) != nullptr)
    return absl::NotFoundError(
        absl::StrCat(name, " is no device, and no address of ", before, " has that label: write ", before));
  return absl::NotFoundError(absl::StrCat("no interface ", name, " in this network namespace"));
}

absl::StatusOr<Addr> FirstAddress(const HostNet& net, uint32_t ifindex) {
  std::optional<Addr> found;
  for (const HostAddress& a : net.addresses) {
    if (a.ifindex != ifindex || !IsGlobal(a.address)) continue;
    if (!found || (a.address.is_v4() && !found->is_v4())) found = a.address;
  }
  if (found) return *found;
  const HostLink* link = net.LinkAt(ifindex);
  return absl::FailedPreconditionError(
      absl::StrCat("NIC ", link == nullptr ? "" : link->name,
                   " has no IPv4 or global IPv6 address; give it one, or name the address in the configuration"));
}

std::string WhyNoAddress(const HostNet& net, uint32_t ifindex, const std::string& device, const Addr& address) {
  const HostLink* other = nullptr;
  for (const HostAddress& a : net.addresses) {
    if (a.address != address) continue;
    const HostLink* holder = net.LinkAt(a.ifindex);
    if (a.ifindex == ifindex || (holder != nullptr && SharesPackets(net, *holder, ifindex))) return "";
    if (other == nullptr) other = holder;
  }
  const std::string text = absl::StrCat("address ", address.ToString());
  return other == nullptr ? absl::StrCat(text, " is gone from ", device)
                          : absl::StrCat(text, " is on ", other->name, " now");
}

std::string AddressesOf(const HostNet& net, uint32_t ifindex) {
  std::vector<std::string> list;
  for (const HostAddress& a : net.addresses) {
    if (a.ifindex == ifindex && IsGlobal(a.address)) list.push_back(a.address.ToString());
  }
  return list.empty() ? "none" : absl::StrJoin(list, ", ");
}

}  // namespace cw::agent
