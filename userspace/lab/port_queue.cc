// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/port_queue.h"

#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

// The backlog within a nest of statistics.
std::optional<uint64_t> Backlog(const rtattr* stats) {
  auto* attribute = static_cast<const rtattr*>(RTA_DATA(stats));
  int left = static_cast<int>(RTA_PAYLOAD(stats));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != TCA_STATS_QUEUE || RTA_PAYLOAD(attribute) < sizeof(gnet_stats_queue)) continue;
    gnet_stats_queue queue;
    std::memcpy(&queue, RTA_DATA(attribute), sizeof(queue));
    return queue.backlog;
  }
  return std::nullopt;
}

// Of the port's root discipline; nullopt: the message is of another.
std::optional<uint64_t> BacklogOf(const nlmsghdr* message, int ifindex) {
  if (message->nlmsg_type != RTM_NEWQDISC) return std::nullopt;
  const auto* tc = static_cast<const tcmsg*>(NLMSG_DATA(message));
  if (tc->tcm_ifindex != ifindex || tc->tcm_parent != TC_H_ROOT) return std::nullopt;
  auto* attribute = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(tc) + NLMSG_ALIGN(sizeof(*tc)));
  int left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof(*tc)));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == TCA_STATS2) return Backlog(attribute);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PortQueue>> PortQueue::Open(const Fabric& fabric, const LinkDirection& link) {
  const absl::StatusOr<double> mbps = fabric.LinkRateMbps(link);
  if (!mbps.ok()) return mbps.status();
  if (link.tier != LinkDirection::Tier::kSpine || *mbps <= 0)
    return absl::FailedPreconditionError("only shaped leaf-spine links have a queue to look at");
  const bool up = link.toward == LinkDirection::Toward::kUp;
  const absl::StatusOr<int> netlink =
      SocketInNetns(NetnsPath(SendingPort(fabric.spec(), link).netns), AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (!netlink.ok()) return netlink.status();
  const int ifindex = up ? LeafPortIfindex(link.leaf, link.spine) : SpinePortIfindex(link.leaf, link.spine);
  return std::unique_ptr<PortQueue>(new PortQueue(*netlink, ifindex));
}

PortQueue::~PortQueue() { close(netlink_); }

absl::StatusOr<uint64_t> PortQueue::WaitingBytes() {
  struct {
    nlmsghdr header;
    tcmsg tc;
  } request = {};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(tcmsg));
  request.header.nlmsg_type = RTM_GETQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.header.nlmsg_seq = ++sequence_;
  request.tc.tcm_family = AF_UNSPEC;
  request.tc.tcm_ifindex = ifindex_;
  if (send(netlink_, &request, request.header.nlmsg_len, 0) < 0) return absl::ErrnoToStatus(errno, "ask for queues");
  std::optional<uint64_t> found;
  for (;;) {
    alignas(nlmsghdr) char buffer[32768];
    const ssize_t n = recv(netlink_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "read what waits in a queue");
    int left = static_cast<int>(n);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_seq != sequence_) continue;
      if (message->nlmsg_type == NLMSG_ERROR)
        return absl::ErrnoToStatus(-static_cast<nlmsgerr*>(NLMSG_DATA(message))->error, "ask for queues");
      if (message->nlmsg_type == NLMSG_DONE) {
        if (!found) return absl::NotFoundError("the port has no queue of its own");
        return *found;
      }
      if (const std::optional<uint64_t> backlog = BacklogOf(message, ifindex_)) found = backlog;
    }
  }
}

}  // namespace cw::lab
