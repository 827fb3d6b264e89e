// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/link_news.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"

namespace cw::dataplane {

absl::StatusOr<std::unique_ptr<LinkNews>> LinkNews::Open() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return absl::ErrnoToStatus(errno, "open a netlink socket for news of network devices");
  std::unique_ptr<LinkNews> news(new LinkNews(fd));
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return absl::ErrnoToStatus(errno, "listen to news of network devices");
  return news;
}

LinkNews::~LinkNews() { close(fd_); }

LinkNews::Changed LinkNews::Take() {
  Changed changed;
  alignas(nlmsghdr) char buffer[32768];
  while (true) {
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOBUFS) {
      changed.lost = true;
      continue;
    }
    if (n <= 0) return changed;
    auto left = static_cast<int>(n);
    for (auto* m = reinterpret_cast<const nlmsghdr*>(buffer); left > 0 && NLMSG_OK(m, static_cast<unsigned>(left));
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type != RTM_NEWLINK && m->nlmsg_type != RTM_DELLINK) continue;
      if (m->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) continue;
      const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(m));
      changed.ifindexes.insert(static_cast<uint32_t>(link->ifi_index));
      // With AF_BRIDGE a port left its bridge.
      if (m->nlmsg_type == RTM_DELLINK && link->ifi_family == AF_UNSPEC)
        changed.removed.insert(static_cast<uint32_t>(link->ifi_index));
    }
  }
}

}  // namespace cw::dataplane
