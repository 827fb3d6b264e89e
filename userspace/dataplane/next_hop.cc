// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/next_hop.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include <functional>

#include "absl/strings/str_format.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {
namespace {

uint8_t FamilyOf(const Addr& address) { return address.is_v4() ? AF_INET : AF_INET6; }
size_t AddressLen(const Addr& address) { return address.is_v4() ? 4 : 16; }

template <typename Body>
struct Request {
  nlmsghdr header{};
  Body body{};
  char attributes[128]{};

  Request(uint16_t type, uint16_t flags) {
    header.nlmsg_len = NLMSG_LENGTH(sizeof(Body));
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  }
  void Add(uint16_t type, const void* data, size_t size) {
    auto* at = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&header) + NLMSG_ALIGN(header.nlmsg_len));
    at->rta_type = type;
    at->rta_len = static_cast<uint16_t>(RTA_LENGTH(size));
    memcpy(RTA_DATA(at), data, size);
    header.nlmsg_len = static_cast<uint32_t>(NLMSG_ALIGN(header.nlmsg_len) + RTA_LENGTH(size));
  }
  void AddAddress(uint16_t type, const Addr& address) {
    const size_t len = AddressLen(address);
    Add(type, address.bytes.data() + address.bytes.size() - len, len);
  }
};

// Sends the request and gives its one answer to `visit`; an error message is the result.
absl::Status Ask(const nlmsghdr& request, const char* what, const std::function<void(const nlmsghdr&)>& visit) {
  maps::UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.ok() || send(fd.get(), &request, request.nlmsg_len, 0) < 0) return absl::ErrnoToStatus(errno, what);
  alignas(nlmsghdr) char buffer[8192];
  const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
  if (n < 0) return absl::ErrnoToStatus(errno, what);
  const auto* answer = reinterpret_cast<const nlmsghdr*>(buffer);
  if (!NLMSG_OK(answer, static_cast<size_t>(n))) return absl::InternalError(absl::StrFormat("%s: cut answer", what));
  if (answer->nlmsg_type == NLMSG_ERROR) {
    const int error = -static_cast<const nlmsgerr*>(NLMSG_DATA(answer))->error;
    return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, what);
  }
  visit(*answer);
  return absl::OkStatus();
}

template <typename Body>
const void* Attribute(const nlmsghdr& message, uint16_t type, size_t size) {
  const auto* body = static_cast<const Body*>(NLMSG_DATA(&message));
  const auto* at = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(body) + NLMSG_ALIGN(sizeof(Body)));
  for (size_t left = NLMSG_PAYLOAD(&message, sizeof(Body)); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    if (at->rta_type == type && RTA_PAYLOAD(at) >= size) return RTA_DATA(at);
  }
  return nullptr;
}

absl::Status Write(uint16_t type, uint32_t ifindex, const Neighbour& neighbour, uint16_t state) {
  const bool make = type == RTM_NEWNEIGH;
  Request<ndmsg> request(type, static_cast<uint16_t>(NLM_F_ACK | (make ? NLM_F_CREATE | NLM_F_REPLACE : 0)));
  request.body.ndm_family = FamilyOf(neighbour.address);
  request.body.ndm_ifindex = static_cast<int>(ifindex);
  request.body.ndm_state = state;
  request.AddAddress(NDA_DST, neighbour.address);
  if (make) request.Add(NDA_LLADDR, neighbour.mac.data(), neighbour.mac.size());
  return Ask(request.header, "write a neighbour's entry", [](const nlmsghdr&) {});
}

}  // namespace

absl::StatusOr<Neighbour> NextHop(uint32_t ifindex, const Addr& source, const Addr& destination) {
  Neighbour out{.address = destination};
  Request<rtmsg> route(RTM_GETROUTE, 0);
  const size_t len = AddressLen(destination);
  route.body.rtm_family = FamilyOf(destination);
  route.body.rtm_dst_len = route.body.rtm_src_len = static_cast<uint8_t>(len * 8);
  route.AddAddress(RTA_DST, destination);
  route.AddAddress(RTA_SRC, source);
  route.Add(RTA_OIF, &ifindex, sizeof(ifindex));
  absl::Status status = Ask(route.header, "ask for a route", [&](const nlmsghdr& answer) {
    // IPv4 may go by an IPv6 next hop (RFC 5549), which RTA_VIA would say: then the destination stands, unknown.
    if (const void* via = Attribute<rtmsg>(answer, RTA_GATEWAY, len)) {
      memcpy(out.address.bytes.data() + out.address.bytes.size() - len, via, len);
    }
  });
  if (!status.ok()) return status;
  Request<ndmsg> entry(RTM_GETNEIGH, 0);
  entry.body.ndm_family = FamilyOf(out.address);
  entry.body.ndm_ifindex = static_cast<int>(ifindex);
  entry.AddAddress(NDA_DST, out.address);
  // No entry is no error: none was needed yet.
  Ask(entry.header, "ask for a neighbour", [&](const nlmsghdr& answer) {
    const auto* body = static_cast<const ndmsg*>(NLMSG_DATA(&answer));
    out.permanent = (body->ndm_state & NUD_PERMANENT) != 0;
    if ((body->ndm_state & (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE)) == 0)
      return;
    if (const void* mac = Attribute<ndmsg>(answer, NDA_LLADDR, out.mac.size())) {
      memcpy(out.mac.data(), mac, out.mac.size());
      out.known = true;
    }
  }).IgnoreError();
  return out;
}

absl::Status PinNeighbour(uint32_t ifindex, const Neighbour& neighbour) {
  return Write(RTM_NEWNEIGH, ifindex, neighbour, NUD_PERMANENT);
}

absl::Status UnpinNeighbour(uint32_t ifindex, const Neighbour& neighbour) {
  return Write(neighbour.known ? RTM_NEWNEIGH : RTM_DELNEIGH, ifindex, neighbour, NUD_STALE);
}

}  // namespace cw::dataplane
