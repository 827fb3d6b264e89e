// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/qdiscs.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {
namespace {

void ParseQdisc(nlmsghdr* message, uint32_t ifindex, std::vector<Qdisc>& qdiscs) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(tcmsg))) return;
  auto* header = static_cast<tcmsg*>(NLMSG_DATA(message));
  if (static_cast<uint32_t>(header->tcm_ifindex) != ifindex) return;
  Qdisc qdisc{.kind = {}, .handle = header->tcm_handle, .parent = header->tcm_parent};
  auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof(tcmsg)));
  for (auto* a = TCA_RTA(header); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
    if (a->rta_type != TCA_KIND) continue;
    const auto* kind = static_cast<const char*>(RTA_DATA(a));
    qdisc.kind.assign(kind, strnlen(kind, RTA_PAYLOAD(a)));
  }
  qdiscs.push_back(std::move(qdisc));
}

}  // namespace

bool KeepsDepartures(const std::vector<Qdisc>& qdiscs) {
  size_t fq = 0, tbf = 0, mq = 0;
  bool root_is_fq = false;
  for (const Qdisc& q : qdiscs) {
    if (q.kind == "clsact" || q.kind == "ingress") continue;
    if (q.kind != "fq" && q.kind != "tbf" && q.kind != "mq") return false;
    fq += q.kind == "fq" ? 1 : 0;
    tbf += q.kind == "tbf" ? 1 : 0;
    mq += q.kind == "mq" ? 1 : 0;
    root_is_fq |= q.kind == "fq" && q.parent == TC_H_ROOT;
  }
  if (root_is_fq) return true;
  // mq lists all its children; a tbf lists the one it has only where somebody put it there.
  return fq > 0 && fq >= tbf && (mq == 0 || tbf == 0);
}

absl::StatusOr<bool> ParseQdiscDump(const void* data, size_t length, uint32_t ifindex, std::vector<Qdisc>& qdiscs) {
  auto* message = static_cast<nlmsghdr*>(const_cast<void*>(data));
  // As int: a last message whose length is no multiple of 4 leaves less than nothing.
  for (auto left = static_cast<int>(length); left > 0 && NLMSG_OK(message, static_cast<unsigned>(left));
       message = NLMSG_NEXT(message, left)) {
    if (message->nlmsg_type == NLMSG_DONE) return false;
    if (message->nlmsg_type == NLMSG_ERROR) {
      if (message->nlmsg_len < NLMSG_LENGTH(sizeof(nlmsgerr))) return absl::InternalError("netlink: short error");
      const int error = std::abs(std::max(static_cast<nlmsgerr*>(NLMSG_DATA(message))->error, -4095));
      if (error == 0) return false;
      return absl::ErrnoToStatus(error, "list queueing disciplines");
    }
    if (message->nlmsg_type == RTM_NEWQDISC) ParseQdisc(message, ifindex, qdiscs);
  }
  return true;
}

absl::StatusOr<std::vector<Qdisc>> QdiscsOf(uint32_t ifindex) {
  maps::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, "open a netlink socket");
  const timeval timeout{2, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  struct {
    nlmsghdr header;
    tcmsg message;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETQDISC;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.message.tcm_family = AF_UNSPEC;
  request.message.tcm_ifindex = static_cast<int>(ifindex);
  if (send(fd.get(), &request, sizeof(request), 0) < 0) return absl::ErrnoToStatus(errno, "ask for qdiscs");
  std::vector<Qdisc> qdiscs;
  for (;;) {
    alignas(nlmsghdr) char buffer[32768];
    const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::ErrnoToStatus(n == 0 ? EPIPE : errno, "read qdiscs");
    const absl::StatusOr<bool> more = ParseQdiscDump(buffer, static_cast<size_t>(n), ifindex, qdiscs);
    if (!more.ok()) return more.status();
    if (!*more) return qdiscs;
  }
}

}  // namespace cw::dataplane
