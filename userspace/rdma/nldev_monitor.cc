// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/nldev_monitor.h"

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/status/status.h"

namespace cw::rdma {
namespace {
constexpr int kGroupNotify = 4;  // RDMA_NL_GROUP_NOTIFY, which headers before 6.12 lack
}  // namespace

absl::StatusOr<std::unique_ptr<NldevMonitor>> NldevMonitor::Open() {
  mnl_socket* socket = mnl_socket_open2(NETLINK_RDMA, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket == nullptr) return absl::UnavailableError("this kernel has no RDMA netlink (is ib_core loaded?)");
  std::unique_ptr<NldevMonitor> monitor(new NldevMonitor(socket));
  int group = kGroupNotify;
  if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0 ||
      mnl_socket_setsockopt(socket, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0) {
    return absl::ErrnoToStatus(errno, "RDMA netlink's news");
  }
  return monitor;
}

NldevMonitor::~NldevMonitor() { mnl_socket_close(socket_); }

int NldevMonitor::fd() const { return mnl_socket_get_fd(socket_); }

bool NldevMonitor::Drain() {
  char buffer[8192];
  bool any = false;
  // ENOBUFS: news were lost, which is news.
  while (recv(fd(), buffer, sizeof(buffer), 0) > 0 || errno == ENOBUFS) {
    any = true;
    errno = 0;
  }
  return any;
}

}  // namespace cw::rdma
