// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/address_watch.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "userspace/agent/host_net.h"

namespace cw::agent {

absl::StatusOr<std::unique_ptr<AddressWatch>> AddressWatch::Open() {
  maps::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a netlink socket for notifications of addresses");
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return absl::ErrnoToStatus(errno, "listen to notifications of addresses");
  return std::unique_ptr<AddressWatch>(new AddressWatch(std::move(fd)));
}

AddressWatch::Changed AddressWatch::Take() {
  Changed changed;
  alignas(nlmsghdr) char buffer[32768];
  while (true) {
    const ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOBUFS) {
      changed.lost = true;
      continue;
    }
    if (n <= 0) return changed;
    auto left = static_cast<int>(n);
    for (auto* m = reinterpret_cast<const nlmsghdr*>(buffer); left > 0 && NLMSG_OK(m, static_cast<unsigned>(left));
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == RTM_NEWADDR || m->nlmsg_type == RTM_DELADDR) changed.addresses.insert(AddressIn(*m).address);
    }
  }
}

}  // namespace cw::agent
