// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/netdev.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "absl/strings/str_format.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {
namespace {

// Never NotFound: callers take that for a device that is gone.
absl::Status NotToldError(int error, const std::string& what) {
  return absl::UnavailableError(
      absl::StrFormat("the kernel was not asked for interface %s: %s; see the limit on open "
                      "files",
                      what, strerror(error)));
}

}  // namespace

absl::StatusOr<uint32_t> IfindexOf(const std::string& ifname) {
  const uint32_t index = if_nametoindex(ifname.c_str());
  if (index != 0) return index;
  // It opens a socket to ask: without a descriptor for that, nothing is known of the device.
  if (errno == ENODEV) return absl::NotFoundError(absl::StrFormat("no interface %s in this network namespace", ifname));
  return NotToldError(errno, ifname);
}

absl::StatusOr<std::string> IfnameOf(uint32_t ifindex) {
  char name[IF_NAMESIZE];
  if (if_indextoname(ifindex, name) != nullptr) return std::string(name);
  if (errno == ENODEV || errno == ENXIO)
    return absl::NotFoundError(absl::StrFormat("no interface with index %u in this network namespace", ifindex));
  return NotToldError(errno, absl::StrFormat("index %u", ifindex));
}

namespace {

absl::StatusOr<ifreq> AskDevice(const std::string& ifname, unsigned long what) {
  maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a socket");
  ifreq request = {};
  strncpy(request.ifr_name, ifname.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd.get(), what, &request) != 0) return absl::ErrnoToStatus(errno, absl::StrFormat("ask for %s", ifname));
  return request;
}

}  // namespace

absl::StatusOr<bool> LinkUp(const std::string& ifname) {
  const auto answer = AskDevice(ifname, SIOCGIFFLAGS);
  if (!answer.ok()) return answer.status();
  return (answer->ifr_flags & IFF_UP) != 0 && (answer->ifr_flags & IFF_RUNNING) != 0;
}

absl::StatusOr<std::array<uint8_t, 6>> MacOf(const std::string& ifname) {
  const auto answer = AskDevice(ifname, SIOCGIFHWADDR);
  if (!answer.ok()) return answer.status();
  std::array<uint8_t, 6> mac;
  std::copy_n(reinterpret_cast<const uint8_t*>(answer->ifr_hwaddr.sa_data), mac.size(), mac.begin());
  return mac;
}

absl::StatusOr<uint32_t> MtuOf(const std::string& ifname) {
  maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a socket");
  ifreq request = {};
  strncpy(request.ifr_name, ifname.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd.get(), SIOCGIFMTU, &request) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("read the MTU of %s", ifname));
  }
  return static_cast<uint32_t>(request.ifr_mtu);
}

absl::StatusOr<std::array<uint8_t, 6>> MacOf(uint32_t ifindex) {
  absl::StatusOr<std::string> name = IfnameOf(ifindex);
  if (!name.ok()) return name.status();
  maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a socket");
  ifreq request = {};
  strncpy(request.ifr_name, name->c_str(), IFNAMSIZ - 1);
  if (ioctl(fd.get(), SIOCGIFHWADDR, &request) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("read the address of %s", *name));
  }
  if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
    return absl::FailedPreconditionError(absl::StrFormat("%s is no Ethernet device", *name));
  std::array<uint8_t, 6> mac;
  memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

absl::StatusOr<uint64_t> NetnsInode() {
  struct stat ns;
  if (stat("/proc/thread-self/ns/net", &ns) != 0) return absl::ErrnoToStatus(errno, "look at /proc/thread-self/ns/net");
  return static_cast<uint64_t>(ns.st_ino);
}

namespace {

// Filters in one netlink datagram; `done` once the dump's end was in it. Or a negative errno.
int CountInDatagram(const char* buffer, size_t bytes, bool& done) {
  int filters = 0;
  auto* message = reinterpret_cast<const nlmsghdr*>(buffer);
  for (auto left = static_cast<int>(bytes); left > 0 && NLMSG_OK(message, static_cast<unsigned>(left));
       message = NLMSG_NEXT(message, left)) {
    if (message->nlmsg_type == RTM_NEWTFILTER) ++filters;
    if (message->nlmsg_type == NLMSG_DONE) done = true;
    if (message->nlmsg_type == NLMSG_ERROR) return static_cast<const nlmsgerr*>(NLMSG_DATA(message))->error;
  }
  return filters;
}

absl::StatusOr<int> CountFilters(uint32_t ifindex, uint32_t parent) {
  maps::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a netlink socket");
  struct {
    nlmsghdr header;
    tcmsg message;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETTFILTER;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.message.tcm_family = AF_UNSPEC;
  request.message.tcm_ifindex = static_cast<int>(ifindex);
  request.message.tcm_parent = parent;
  if (send(fd.get(), &request, sizeof(request), 0) < 0) return absl::ErrnoToStatus(errno, "ask for tc filters");
  int filters = 0;
  for (bool done = false; !done;) {
    alignas(nlmsghdr) char buffer[16384];
    const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (n <= 0) return absl::ErrnoToStatus(n == 0 ? EPIPE : errno, "read tc filters");
    const int got = CountInDatagram(buffer, static_cast<size_t>(n), done);
    if (got < 0) return absl::ErrnoToStatus(-got, "list tc filters");
    filters += got;
  }
  return filters;
}

}  // namespace

absl::StatusOr<int> CountClsactFilters(uint32_t ifindex, bool egress) {
  return CountFilters(ifindex, TC_H_MAKE(TC_H_CLSACT, egress ? TC_H_MIN_EGRESS : TC_H_MIN_INGRESS));
}

}  // namespace cw::dataplane
