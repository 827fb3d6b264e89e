// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric_route.h"

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

struct Request {
  nlmsghdr header;
  rtmsg route;
  char attributes[160];
};

void Add(Request& request, uint16_t type, const void* data, size_t size) {
  auto* attribute =
      reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&request) + NLMSG_ALIGN(request.header.nlmsg_len));
  attribute->rta_type = type;
  attribute->rta_len = RTA_LENGTH(size);
  std::memcpy(RTA_DATA(attribute), data, size);
  request.header.nlmsg_len = NLMSG_ALIGN(request.header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
}

absl::StatusOr<int> OutputIn(nlmsghdr* reply) {
  if (reply->nlmsg_type == NLMSG_ERROR) {
    const int error = -static_cast<nlmsgerr*>(NLMSG_DATA(reply))->error;
    return absl::UnavailableError(absl::StrCat("no route: ", std::strerror(error)));
  }
  auto* route = static_cast<rtmsg*>(NLMSG_DATA(reply));
  int size = RTM_PAYLOAD(reply);
  for (rtattr* a = RTM_RTA(route); RTA_OK(a, size); a = RTA_NEXT(a, size)) {
    if (a->rta_type == RTA_OIF) return *static_cast<int*>(RTA_DATA(a));
  }
  return absl::UnavailableError("no route: the kernel names no output");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouteQuery>> RouteQuery::Open(const std::string& netns_path) {
  absl::StatusOr<int> fd = SocketInNetns(netns_path, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (!fd.ok()) return fd.status();
  return std::unique_ptr<RouteQuery>(new RouteQuery(*fd));
}

RouteQuery::~RouteQuery() { close(fd_); }

absl::StatusOr<int> RouteQuery::OutputOf(int in_ifindex, const std::string& source, const std::string& destination,
                                         uint16_t sport, uint16_t dport) {
  const bool ip6 = source.find(':') != std::string::npos;
  const int family = ip6 ? AF_INET6 : AF_INET;
  const size_t len = ip6 ? 16 : 4;
  uint8_t from[16], to[16];
  if (inet_pton(family, source.c_str(), from) != 1 || inet_pton(family, destination.c_str(), to) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("not addresses of one family: ", source, ", ", destination));
  }
  const std::lock_guard lock(mutex_);
  Request request = {};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++sequence_;
  request.route.rtm_family = static_cast<uint8_t>(family);
  request.route.rtm_dst_len = request.route.rtm_src_len = static_cast<uint8_t>(len * 8);
  const uint8_t protocol = IPPROTO_UDP;
  const uint16_t source_port = htons(sport), destination_port = htons(dport);
  Add(request, RTA_DST, to, len);
  Add(request, RTA_SRC, from, len);
  Add(request, RTA_IIF, &in_ifindex, sizeof(in_ifindex));
  Add(request, RTA_IP_PROTO, &protocol, sizeof(protocol));
  Add(request, RTA_SPORT, &source_port, sizeof(source_port));
  Add(request, RTA_DPORT, &destination_port, sizeof(destination_port));
  if (send(fd_, &request, request.header.nlmsg_len, 0) < 0) return absl::ErrnoToStatus(errno, "ask for a route");
  alignas(nlmsghdr) char buffer[8192];
  for (;;) {
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "read a route");
    auto* reply = reinterpret_cast<nlmsghdr*>(buffer);
    if (NLMSG_OK(reply, static_cast<uint32_t>(n)) && reply->nlmsg_seq == sequence_) return OutputIn(reply);
  }
}

}  // namespace cw::lab
