// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nic_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

// Global: neither 169.254/16 nor fe80::/10, which are link-local. Zero: not an address, or not such a one.
Addr GlobalAddress(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const uint32_t host_order = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return host_order >> 16 != 0xa9fe ? Addr::FromV4(host_order) : Addr{};
  }
  if (address->sa_family != AF_INET6) return {};
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&v6) ? Addr{} : Addr::FromBytes(v6.s6_addr);
}

}  // namespace

absl::StatusOr<Addr> FirstAddress(const std::string& device) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return absl::ErrnoToStatus(errno, "getifaddrs");
  std::optional<Addr> found;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    const Addr address = device == a->ifa_name ? GlobalAddress(a->ifa_addr) : Addr{};
    if (!address.is_zero() && (!found || (address.is_v4() && !found->is_v4()))) found = address;
  }
  freeifaddrs(list);
  if (!found)
    return absl::FailedPreconditionError(absl::StrCat(
        "NIC ", device, " has no IPv4 or global IPv6 address; give it one, or name the address in the configuration"));
  return *found;
}

bool IsLoopback(const std::string& device) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool loopback = false;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next)
    loopback |= device == a->ifa_name && (a->ifa_flags & IFF_LOOPBACK) != 0;
  freeifaddrs(list);
  return loopback;
}

bool HasAddress(const std::string& device, const Addr& wanted) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next)
    found |= device == a->ifa_name && GlobalAddress(a->ifa_addr) == wanted;
  freeifaddrs(list);
  return found;
}

}  // namespace cw::agent
